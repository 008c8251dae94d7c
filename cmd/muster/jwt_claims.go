package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
)

// claims returns what the flags say, without what has to be read or asked for,
// and all that is wrong with it.
func (v *jwtVerb) claims() (jwt.Claims, jwt.Limits, []error) {
	var mistakes []error
	bad := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }

	now := v.now().UTC()
	c := jwt.Claims{
		Secure: !v.insecure, SRVDomain: v.srv, Default: v.byDefault, Registration: v.registration, Facts: v.facts,
		Username: v.username, Password: wire.Secret(v.password), Organization: v.org, ProtocolV2: v.protocolV2,
		AllowUpdate: v.upgrade, Purpose: jwt.Purpose, Subject: jwt.Purpose, Issuer: program, IssuedAt: now, NotBefore: now,
		JTI: jwt.NewJTI(),
	}
	if v.vault {
		bad("--vault: signing with Vault's transit engine is not supported; sign with a key file, encrypted if need be")
	}
	if v.given("token") && v.given("token-file") {
		bad("--token and --token-file exclude each other")
	}
	if v.given("token") && v.token == "" {
		bad("--token is empty, and an empty secret guards nothing")
	}
	if !v.given("token", "token-file") && !cli.IsTerminal(os.Stdin) {
		bad("no secret: give --token-file FILE or --token SECRET, or answer on a terminal")
	}
	mistakes = slices.Concat(mistakes, v.brokers(&c), nodePath("registration", v.registration), nodePath("facts", v.facts))
	if v.org == "" {
		bad("--org is empty; leave it out for %q", jwt.DefaultOrganization)
	}
	mistakes = append(mistakes, v.times(&c, now)...)
	if v.extensions != "" {
		var err error
		if c.Extensions, err = parseExtensions(v.extensions); err != nil {
			bad("--extensions: %w", err)
		}
	}
	limits, wrong := v.limits()
	mistakes = append(mistakes, wrong...)
	if _, ok := c.Extensions["muster"]; ok {
		if v.given("uses", "identity", "site", "ca", "seal") {
			bad("--extensions has a member \"muster\", and so do --uses, --identity, --site, --ca and --seal: use one way or the other")
		} else if _, err := c.Limits(); err != nil {
			bad("--extensions: %w", err)
		}
	}
	return c, limits, mistakes
}

// times sets when the token becomes valid and when it expires.
func (v *jwtVerb) times(c *jwt.Claims, now time.Time) []error {
	var mistakes []error
	if v.notBefore != "" {
		at, err := cli.ParseInstant(v.notBefore, now)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("--not-before: %w", err))
			at = now // for the check of the validity alone
		}
		c.NotBefore = at
	}
	d, err := cli.ParseDuration(v.validity)
	switch c.ExpiresAt = c.NotBefore.Add(d); {
	case err != nil:
		mistakes = append(mistakes, fmt.Errorf("--validity: %w", err))
	case d <= 0:
		mistakes = append(mistakes, fmt.Errorf("--validity is %q, want more than nothing", v.validity))
	case !c.ExpiresAt.After(now):
		mistakes = append(mistakes, fmt.Errorf("--validity %s from --not-before %s is over already", v.validity, v.notBefore))
	}
	return mistakes
}

// drive is what a full path on Windows, where Choria runs too, begins with.
var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)

// nodePath returns a mistake if the flag names a file on the machines by a
// relative path: relative to what, nobody knows there.
func nodePath(flag, path string) []error {
	if path == "" || strings.HasPrefix(path, "/") || drive.MatchString(path) {
		return nil
	}
	return []error{fmt.Errorf("--%s is %q, want a full path such as /etc/facts.json: it is a file on the machines, not here", flag, path)}
}

// parseExtensions parses the one JSON object in text.
func parseExtensions(text string) (map[string]json.RawMessage, error) {
	if mistake := noJSON(text); mistake != "" {
		return nil, fmt.Errorf(`%s, want a JSON object such as {"rack": "b4"}; of a file give what it holds: "$(cat FILE)"`, mistake)
	}
	if err := wire.CheckStrict([]byte(text)); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil || m == nil {
		return nil, errors.New(`not a JSON object such as {"rack": "b4"}`)
	}
	return m, nil
}

// noJSON says where text is no JSON, which a person has typed, in other words than those of
// the decoder, which are about characters alone; "" if it is.
func noJSON(text string) string {
	var value json.RawMessage
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal([]byte(text), &value), &syntax) {
		return ""
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&value); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "the JSON ends too early"
	}
	at := int(max(syntax.Offset, 1)) // of the byte that does not fit, from 1
	return fmt.Sprintf("no JSON from byte %d on, %.20q", at, strings.ToValidUTF8(text[at-1:], "\ufffd"))
}

// brokers sets where the brokers are.
func (v *jwtVerb) brokers(c *jwt.Claims) []error {
	var mistakes []error
	var all []string
	for _, list := range v.urls {
		for u := range strings.SplitSeq(list, ",") {
			if u = strings.TrimSpace(u); u != "" {
				all = append(all, u)
			}
		}
	}
	for _, u := range all {
		if err := jwt.CheckURL(u); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--urls: %w", err))
		}
	}
	c.Brokers = strings.Join(all, ",")
	if v.srv != "" {
		if _, err := wire.ParseIdentity(strings.TrimSuffix(strings.ToLower(v.srv), ".")); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--srv: %q is not a domain such as provision.example.net; the names of the services are put in front of it", v.srv))
		}
	}
	switch {
	case len(all) > 0 && v.srv != "":
		mistakes = append(mistakes, errors.New("--urls and --srv exclude each other: machines refuse a token with both"))
	case len(all) == 0 && v.srv == "":
		mistakes = append(mistakes, errors.New("no brokers: give --urls HOST:PORT,... or --srv DOMAIN"))
	}
	return mistakes
}

// limits returns what goes into extensions.muster.
func (v *jwtVerb) limits() (jwt.Limits, []error) {
	var mistakes []error
	l := jwt.Limits{Uses: v.uses}
	if v.given("uses") && v.uses < 1 {
		mistakes = append(mistakes, fmt.Errorf("--uses is %d, want 1 or more; leave it out for any number", v.uses))
	}
	for _, s := range v.identities {
		p, err := wire.ParsePattern(s)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("--identity: %w", err))
		}
		l.Identities = append(l.Identities, p)
	}
	if v.given("seal") && v.seal == "" {
		mistakes = append(mistakes, errors.New("--seal is empty; leave it out to sign a token that machines show in plain"))
	}
	if v.given("site") {
		site, err := jwt.ParseSite(v.site)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("--site: %w", err))
		}
		l.Site = site
	}
	return l, mistakes
}

// setLimits writes the limits, unless they are in --extensions.
func (v *jwtVerb) setLimits(c *jwt.Claims, l jwt.Limits) error {
	if _, ok := c.Extensions["muster"]; ok {
		return nil
	}
	return c.SetLimits(l)
}
