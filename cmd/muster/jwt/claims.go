package jwt

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
)

// claims returns the claims and limits from the flags, or all mistakes. It neither reads files nor asks.
func (v *command) claims() (jwt.Claims, jwt.Limits, error) {
	var mistakes []error
	bad := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	s := &v.sign
	c, now := s.claims, time.Now().UTC()
	c.Secure, c.Issuer, c.JTI = !s.insecure, verb.Program, jwt.NewJTI()
	c.Purpose, c.Subject = jwt.Purpose, jwt.Purpose
	switch {
	case v.given("token") && v.given("secret-file"):
		bad("--token and --secret-file: give one of them")
	case !v.given("token", "secret-file") && !cli.IsTerminal(os.Stdin):
		bad("no secret: give --secret-file FILE or --token SECRET, or answer on a terminal")
	}
	if s.seal != "" && c.ProtocolV2 {
		bad("--seal with --protocol-v2, which is for Choria servers: these cannot seal, so leave --seal out")
	}
	brokers, err := signing.Brokers(s.urls, c.SRVDomain)
	c.Brokers = brokers
	mistakes = append(mistakes, err)
	mistakes = append(mistakes, s.times(&c, now))
	if s.extensions != "" {
		c.Extensions, err = parseExtensions(s.extensions)
		mistakes = append(mistakes, verb.Flag("extensions", err))
	}
	limits, err := v.limits()
	mistakes = append(mistakes, err)
	if _, ok := c.Extensions["muster"]; ok {
		bad("--extensions has a member \"muster\": give --uses, --identity, --site, --ca and --seal instead")
	}
	return c, limits, errors.Join(mistakes...)
}

func (s *signFlags) times(c *jwt.Claims, now time.Time) error {
	c.IssuedAt, c.NotBefore = now, now
	var early, late error
	if s.notBefore != "" {
		at, err := span.ParseTime(s.notBefore, now)
		if early = verb.Flag("not-before", err); err == nil {
			c.NotBefore = at
		}
	}
	d, err := span.Parse(s.validity)
	switch c.ExpiresAt = c.NotBefore.Add(d); {
	case err != nil:
		late = fmt.Errorf("--validity: %w", err)
	case d <= 0:
		late = fmt.Errorf("--validity is %q, want 1s or more", s.validity)
	case !c.ExpiresAt.After(now):
		late = fmt.Errorf("--validity %s from --not-before %s: the token has expired", s.validity, s.notBefore)
	}
	return errors.Join(early, late)
}

func (v *command) limits() (jwt.Limits, error) {
	var mistakes []error
	l := v.sign.limits
	if v.given("uses") && l.Uses < 1 {
		mistakes = append(mistakes,
			fmt.Errorf("--uses is %d, want 1 or more; leave it out for an unlimited token", l.Uses))
	}
	for _, s := range v.sign.identities {
		p, err := wire.ParseNamePattern(s)
		mistakes = append(mistakes, verb.Flag("identity", err))
		l.Identities = append(l.Identities, p)
	}
	if v.given("site") {
		_, err := jwt.ParseSite(string(l.Site))
		mistakes = append(mistakes, verb.Flag("site", err))
	}
	return l, errors.Join(mistakes...)
}

func parseExtensions(text string) (map[string]json.RawMessage, error) {
	if err := wire.CheckStrict([]byte(text)); err != nil {
		return nil, fmt.Errorf(`%w; want a JSON object such as {"rack": "b4"}, or "$(cat FILE)" for one in a file`, err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil || m == nil {
		return nil, errors.New(`not a JSON object such as {"rack": "b4"}`)
	}
	return m, nil
}
