package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/seal"
	"muster/jwt"
)

// viewFlags are the flags of view.
var viewFlags = []string{"json", "show-secret"}

func (v *jwtVerb) addViewFlags(c *kingpin.CmdClause) {
	v.flag(c, "json", "View: print JSON for programs.").BoolVar(&v.json)
	v.flag(c, "show-secret", "View: show the secrets in the JSON.").BoolVar(&v.showSecret)
}

// checkView returns what is wrong with the command line of view.
func (v *jwtVerb) checkView() error {
	mistakes := v.refuse("view", viewFlags)
	if v.showSecret && !v.json {
		mistakes = append(mistakes, errors.New("--show-secret works with --json only"))
	}
	return errors.Join(mistakes...)
}

// runView prints a token, verified if there is a key. A token that does not
// verify is not printed at all; one that is authentic but outside its time is,
// and fails afterwards.
func (v *jwtVerb) runView(ctx context.Context) error {
	text, err := readTokenFile(ctx, v.file)
	if errors.Is(err, errPEM) {
		return fmt.Errorf("%w; the token comes first, then the key", err)
	}
	if err != nil {
		return err
	}
	unverified, err := jwt.Peek(text)
	if err != nil {
		return fmt.Errorf("%s: %w", v.file, err)
	}
	var verified *jwt.Verified
	var untimely error
	if v.key != "" {
		if verified, untimely, err = v.verify(ctx, text, unverified); err != nil {
			return err
		}
	}
	if v.json {
		err = v.writeJSON(os.Stdout, unverified, verified)
	} else {
		err = v.writeText(os.Stdout, unverified, verified)
	}
	return errors.Join(err, untimely)
}

// verify verifies a token with the key file. If all is right but the token's
// time, it returns the token and, as untimely, the reason.
func (v *jwtVerb) verify(ctx context.Context, text string, u *jwt.Unverified) (verified *jwt.Verified, untimely, err error) {
	b, err := readFile(ctx, v.key)
	if err != nil {
		return nil, nil, orMissing(err, "give the certificate or public key of whoever signed it, as the signer.pem that `"+program+" provisioner init` made")
	}
	signer, err := jwt.ParseSigner(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", v.key, err)
	}
	if verified, err = verifyAt(text, signer, v.now()); err == nil {
		return verified, nil, nil
	}
	err = fmt.Errorf("%s: %w", v.file, err)
	var at time.Time
	switch {
	case errors.Is(err, jwt.ErrExpired):
		at = u.Expiry().Add(-time.Second)
	case errors.Is(err, jwt.ErrNotYetValid):
		at = u.NotBefore
	case errors.Is(err, jwt.ErrSignature), errors.Is(err, jwt.ErrUnknownSigner):
		return nil, nil, fmt.Errorf("%w; instead of %s, give the certificate or public key of whoever signed it", err, v.key)
	default:
		return nil, nil, err
	}
	// The signature and the signer are right, so the claims are authentic and
	// may be shown. Ask again as of a time when the token was good; the
	// signer's certificate, which has been found valid today, may be younger.
	signer.NotBefore, signer.NotAfter = time.Time{}, time.Time{}
	verified, again := verifyAt(text, signer, at)
	if again != nil {
		return nil, nil, err
	}
	return verified, err, nil
}

// verifyAt verifies a token as of an instant.
func verifyAt(text string, signer jwt.Signer, at time.Time) (*jwt.Verified, error) {
	verifier, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{signer}, Now: func() time.Time { return at }})
	if err != nil {
		return nil, err
	}
	return verifier.Verify(text)
}

// errPEM is of a key or a certificate that was given for a token.
var errPEM = errors.New("PEM, not a token")

// readTokenFile returns the text of a token. The error may wrap errPEM.
func readTokenFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", orMissing(err, "give the file that `"+program+" jwt sign` wrote")
	}
	defer func() { _ = f.Close() }()                             // only read
	b, err := io.ReadAll(io.LimitReader(f, jwt.MaxTokenBytes+3)) // a line end, and one byte too many
	if err != nil {
		return "", err
	}
	text := jwt.FileText(b)
	if strings.HasPrefix(string(b), "-----BEGIN ") {
		return "", fmt.Errorf("%s: %w", path, errPEM)
	}
	if len(text) > jwt.MaxTokenBytes {
		size := fmt.Sprintf("more than %d bytes", jwt.MaxTokenBytes)
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = fmt.Sprintf("%d bytes, limit %d", info.Size(), jwt.MaxTokenBytes)
		}
		return "", fmt.Errorf("%s: %s, so it is no token; give the file that `%s` wrote", path, size, program+" jwt sign")
	}
	return text, nil
}

// writeText prints a token in Choria's layout.
func (v *jwtVerb) writeText(w io.Writer, u *jwt.Unverified, verified *jwt.Verified) error {
	heading := "JWT Token " + v.file
	if verified == nil {
		heading = "JWT Token " + v.file + " (not verified: no key was given, so anybody may have written this)"
	}
	var l cli.Labels
	c := &u.Claims
	addClaims(&l, c)
	v.addLimits(&l, u)
	if verified != nil {
		l.Addf("Signed by", "%s, key SHA-256 %s", verified.SignerName, verified.Signer)
		l.Add("Token ID", string(verified.ID))
	}
	if len(c.Extra) > 0 {
		l.Add("Other Claims", indented(c.Extra))
	}
	l.Add("Standard Claims", indented(standardClaims(c)))

	if _, err := fmt.Fprintf(w, "%s\n\n", cli.Printable(heading)); err != nil {
		return err
	}
	_, err := l.WriteTo(w)
	return err
}

// addClaims adds Choria's claims, in Choria's order; those that a token need
// not have appear only if it has them.
func addClaims(l *cli.Labels, c *jwt.Claims) {
	optional := func(label, value string) {
		if value != "" {
			l.Add(label, value)
		}
	}
	l.Add("Token", setOrNot(c.Token != ""))
	l.Addf("Secure", "%t", c.Secure)
	optional("SRV Domain", c.SRVDomain)
	optional("URLS", strings.Join(c.PublicURLs(), ", "))
	l.Addf("Provisioning by default", "%t", c.Default)
	optional("Provisioning Registration Data", c.Registration)
	optional("Provisioning Facts", c.Facts)
	optional("Broker Username", c.Username)
	if c.Password != "" {
		l.Add("Broker Password", setOrNot(true))
	}
	l.Add("Organization", c.Organization)
	if c.ProtocolV2 {
		l.Add("Using version 2 Protocol", "true")
	}
	if c.AllowUpdate {
		l.Add("Server Version Upgrades", "true")
	}
	if !c.Provisioning() {
		l.Addf("Purpose", "%q, so machines do not take it for provisioning", c.Purpose)
	}
	extensions := maps.Clone(c.Extensions)
	delete(extensions, "muster") // shown in words
	if len(extensions) > 0 {
		l.Add("Extensions", indented(extensions))
	}
}

// addLimits adds muster's limits and the token's times.
func (v *jwtVerb) addLimits(l *cli.Labels, u *jwt.Unverified) {
	if n := u.Limits.Uses; n > 0 {
		l.Addf("Uses", "%d", n)
	}
	if len(u.Limits.Identities) > 0 {
		var all []string
		for _, p := range u.Limits.Identities {
			all = append(all, string(p))
		}
		l.Add("Identities", strings.Join(all, ", "))
	}
	if u.Limits.Site != "" {
		l.Add("Site", string(u.Limits.Site))
	}
	if u.Limits.Seal != "" {
		l.Add("Sealing Key", u.Limits.Seal)
		if key, err := seal.ParsePublicKey(u.Limits.Seal); err == nil {
			l.Add("Sealing Key ID", key.ID())
		} else {
			l.Addf("Sealing Key ID", "none: %v", err)
		}
	}
	if u.Limits.CA != "" {
		l.Add("CA Certificate SHA-256", u.Limits.CA)
	}
	now := v.now()
	if t := u.NotBefore; t.After(now) {
		l.Addf("Valid From", "%s (in %s)", t.Format(time.RFC3339), cli.Span(t.Sub(now)))
	}
	switch t := u.Expiry(); {
	case t.IsZero():
		l.Add("Expires At", "never")
	case t.After(now):
		l.Addf("Expires At", "%s (in %s)", t.Format(time.RFC3339), cli.Span(t.Sub(now)))
	default:
		l.Addf("Expires At", "%s (expired %s ago)", t.Format(time.RFC3339), cli.Span(now.Sub(t)))
	}
}

// standardClaims are those of RFC 7519 that the token has, as it spells them.
func standardClaims(c *jwt.Claims) map[string]any {
	m := make(map[string]any)
	for name, value := range map[string]string{"iss": c.Issuer, "sub": c.Subject, "jti": c.JTI} {
		if value != "" {
			m[name] = value
		}
	}
	for name, t := range map[string]time.Time{"iat": c.IssuedAt, "nbf": c.NotBefore, "exp": c.ExpiresAt} {
		if !t.IsZero() {
			m[name] = t.Unix()
		}
	}
	if c.Audience != nil {
		m["aud"] = c.Audience
	}
	return m
}

func setOrNot(set bool) string {
	if set {
		return "set"
	}
	return "not set"
}

// indented writes claims, which came from JSON, as JSON for people.
func indented(value any) string {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
