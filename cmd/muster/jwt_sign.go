package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
)

// warnTokenBytes is the size from which a token may not fit into the line with
// which a node connects to a broker that is not muster's: nats-server reads
// 4,096 bytes (max_control_line), about 200 of which are not the token, and a
// sealed token is a third longer and brings keys of its own.
const warnTokenBytes = 2600

// signFlags are the flags that mean signing, so that a command line with one
// of them never views.
var signFlags = []string{
	"insecure", "token", "token-file", "urls", "srv", "default", "registration", "facts", "username", "password",
	"org", "extensions", "validity", "not-before", "uses", "identity", "site", "ca", "protocol-v2", "upgrade",
	"update", "vault", "passphrase-file", "force",
}

func (v *jwtVerb) addSignFlags(c *kingpin.CmdClause) {
	v.flag(c, "insecure", "Provision without TLS, as machines have no certificates yet. The default; see also --no-insecure.").
		Default("true").BoolVar(&v.insecure)
	v.flag(c, "token", "Secret that guards the machine's provisioning verbs; asked for if absent. Others see it in the list of processes: prefer --token-file.").
		PlaceHolder("SECRET").StringVar(&v.token)
	v.flag(c, "token-file", "File with the secret.").PlaceHolder("FILE").StringVar(&v.tokenFile)
	v.flag(c, "urls", "Brokers, host:port with commas between them; may be repeated.").PlaceHolder("URLS").StringsVar(&v.urls)
	v.flag(c, "srv", "Domain whose SRV records name the brokers, instead of --urls.").PlaceHolder("DOMAIN").StringVar(&v.srv)
	v.flag(c, "default", "Provision unless the machine's configuration says not to.").BoolVar(&v.byDefault)
	v.flag(c, "registration", "File on the machine to publish regularly.").PlaceHolder("FILE").StringVar(&v.registration)
	v.flag(c, "facts", "File on the machine with its facts.").PlaceHolder("FILE").StringVar(&v.facts)
	v.flag(c, "username", "Broker user while provisioning.").PlaceHolder("NAME").StringVar(&v.username)
	v.flag(c, "password", "Broker password while provisioning.").PlaceHolder("SECRET").StringVar(&v.password)
	v.flag(c, "org", "Organization.").Default(jwt.DefaultOrganization).StringVar(&v.org)
	v.flag(c, "extensions", "Further claims, a JSON object.").PlaceHolder("JSON").StringVar(&v.extensions)
	v.flag(c, "validity", "How long the token is valid, such as 1y, 30d or 12h.").Default("1y").StringVar(&v.validity)
	v.flag(c, "not-before", "When it becomes valid: an instant such as 2027-01-31T12:00:00Z, or a duration from now.").
		PlaceHolder("WHEN").StringVar(&v.notBefore)
	v.flag(c, "uses", "How many machines may enroll with it; any number if absent.").PlaceHolder("N").IntVar(&v.uses)
	v.flag(c, "identity", "Pattern of the machines that may use it, such as web*.example.net; may be repeated.").
		PlaceHolder("GLOB").StringsVar(&v.identities)
	v.flag(c, "site", "Only site where it may be used.").PlaceHolder("NAME").StringVar(&v.site)
	v.flag(c, "ca", "Certificate of the authority that machines shall insist on, PEM.").PlaceHolder("FILE").StringVar(&v.ca)
	v.flag(c, "protocol-v2", "Choria's protocol version 2.").BoolVar(&v.protocolV2)
	v.flag(c, "upgrade", "Allow upgrades in place.").BoolVar(&v.upgrade)
	v.flag(c, "update", "Choria's earlier name of --upgrade.").Hidden().BoolVar(&v.upgrade)
	v.flag(c, "vault", "Not supported.").Hidden().BoolVar(&v.vault)
}

// runSign signs a token into a file, or leaves no file.
func (v *jwtVerb) runSign(ctx context.Context) error {
	claims, limits, mistakes := v.claims()
	mistakes = append(v.refuse("sign", signFlags), mistakes...)
	if err := cli.Usage(v.name, mistakes...); err != nil {
		return err
	}
	// Before anything is asked for: the answer would be wasted.
	if _, err := os.Lstat(v.file); err == nil && !v.force {
		return fmt.Errorf("%s: %w", v.file, cli.ErrExists)
	}
	if sameFile(v.file, v.key) {
		return fmt.Errorf("%s: is both the token to write and the key to sign with", v.file)
	}
	if v.ca != "" {
		pin, err := certificatePin(v.ca)
		if err != nil {
			return err
		}
		limits.CA = pin
	}
	if err := v.setLimits(&claims, limits); err != nil {
		return err
	}
	key, err := v.readPrivateKey(ctx, v.key)
	if err != nil {
		return err
	}
	if claims.Token, err = v.readToken(ctx); err != nil {
		return err
	}
	text, err := jwt.Sign(key, claims)
	if err != nil {
		return err
	}
	if len(text) > warnTokenBytes {
		cli.Say(os.Stderr, program, "warning: the token has %d bytes; above %d a broker with NATS's default max_control_line of 4096 "+
			"may refuse the connection (muster's own brokers take 16384)", len(text), warnTokenBytes)
	}
	if err := cli.WriteNew(v.file, []byte(text), 0o600, v.force); err != nil {
		return err
	}
	cli.Say(os.Stderr, program, "Saved token to %s, use '%s view %s' to view it", v.file, v.name, v.file)
	return nil
}

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
	mistakes = append(mistakes, v.brokers(&c)...)
	if v.org == "" {
		bad("--org is empty; leave it out for %q", jwt.DefaultOrganization)
	}
	if v.notBefore != "" {
		at, err := cli.ParseInstant(v.notBefore, now)
		if err != nil {
			bad("--not-before: %w", err)
		}
		c.NotBefore = at
	}
	if d, err := cli.ParseDuration(v.validity); err != nil {
		bad("--validity: %w", err)
	} else if d <= 0 {
		bad("--validity is %q, want more than nothing", v.validity)
	} else if c.ExpiresAt = c.NotBefore.Add(d); !c.ExpiresAt.After(now) {
		bad("--validity %s from --not-before %s is over already", v.validity, v.notBefore)
	}
	if v.extensions != "" {
		var err error
		if c.Extensions, err = parseExtensions(v.extensions); err != nil {
			bad("--extensions: %w", err)
		}
	}
	limits, wrong := v.limits()
	mistakes = append(mistakes, wrong...)
	if _, ok := c.Extensions["muster"]; ok {
		if v.given("uses", "identity", "site", "ca") {
			bad("--extensions has a member \"muster\", and so do --uses, --identity, --site and --ca: use one way or the other")
		} else if _, err := c.Limits(); err != nil {
			bad("--extensions: %w", err)
		}
	}
	return c, limits, mistakes
}

// parseExtensions parses the one JSON object in text.
func parseExtensions(text string) (map[string]json.RawMessage, error) {
	if err := wire.CheckStrict([]byte(text), nil); err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil || m == nil {
		return nil, errors.New(`not a JSON object such as {"rack": "b4"}`)
	}
	return m, nil
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

// certificatePin returns the SHA-256 of the one certificate in a file.
func certificatePin(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", fmt.Errorf("%s: no certificate in PEM", path)
	}
	if another, _ := pem.Decode(rest); another != nil {
		return "", fmt.Errorf("%s: several PEM blocks, want the authority's certificate alone", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !cert.IsCA {
		return "", fmt.Errorf("%s: certificate of %q is not one of an authority", path, cert.Subject.CommonName)
	}
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:]), nil
}

// sameFile reports whether both paths lead to one file.
func sameFile(a, b string) bool {
	fa, err := os.Stat(a)
	if err != nil {
		return false
	}
	fb, err := os.Stat(b)
	return err == nil && os.SameFile(fa, fb)
}
