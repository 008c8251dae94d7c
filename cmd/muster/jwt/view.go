package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/seal"
	"muster/internal/span"
	"muster/jwt"
)

const viewHelp = `Prints a token without its secrets. With a key, a token that does not verify or is
not valid now is not printed.

  %[1]s view provisioning.jwt
  %[1]s view provisioning.jwt signer.pem -o json

Exits with 0 if the token is printed, and is valid if a key is given, 1 if not, 2 if
the command line is wrong.`

// viewFlags are the flags of view.
type viewFlags struct {
	form       string
	showSecret bool
}

func (v *command) addViewFlags(c *kingpin.CmdClause) {
	cli.Enum(v.flag(c, "view", "output").Short('o').Default(cli.FormTable), &v.view.form, cli.FormTable, cli.FormJSON)
	v.flag(c, "view", "show-secret").BoolVar(&v.view.showSecret)
}

func (v *command) checkView() error {
	err := v.refuse("view")
	if v.view.showSecret && v.view.form != cli.FormJSON {
		err = errors.Join(err, errors.New("--show-secret works with -o json only"))
	}
	return err
}

// A shown is a token to print.
type shown struct {
	*jwt.Unverified
	verified *jwt.Verified              // nil if no key was given
	raw      map[string]json.RawMessage // the claims as the token spells them
	file     string
	now      time.Time
}

// runView prints a token, verified if there is a key. A token that does not
// verify is not printed at all.
func (v *command) runView(context.Context) error {
	text, err := signing.ReadToken(v.file)
	if errors.Is(err, signing.ErrPEM) {
		return fmt.Errorf("%w; the token comes first, then the key", err)
	}
	if err != nil {
		return err
	}
	t := &shown{file: v.file, now: time.Now()}
	if t.Unverified, err = jwt.Peek(text); err == nil {
		err = json.Unmarshal([]byte(t.Payload), &t.raw)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", v.file, err)
	}
	if v.key != "" {
		if t.verified, err = v.verify(text); err != nil {
			return err
		}
	}
	if v.view.form == cli.FormJSON {
		return cli.WriteJSON(os.Stdout, t.json(v.view.showSecret))
	}
	return t.print()
}

func (v *command) verify(text string) (*jwt.Verified, error) {
	signer, err := inputfile.Parse(v.key, inputfile.Typed, jwt.ParseSigner)
	if err != nil {
		return nil, verb.OrMissing(err,
			"give the certificate or public key of its signer, as the signer.pem that `muster provisioner init` made")
	}
	verifier, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{signer}})
	if err != nil {
		return nil, err
	}
	verified, err := verifier.Verify(text)
	switch {
	case errors.Is(err, jwt.ErrSignature), errors.Is(err, jwt.ErrUnknownSigner):
		return nil, fmt.Errorf("%s: %w; instead of %s, give the certificate or public key of its signer", v.file, err,
			v.key)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", v.file, err)
	}
	return verified, nil
}

func (t *shown) print() error {
	heading := "JWT Token " + t.file
	if t.verified == nil {
		heading += " (not verified, so it may be forged: no key was given)"
	}
	l := &cli.Labels{}
	t.addClaims(l)
	t.addLimits(l)
	t.addTimes(l)
	if t.verified != nil {
		l.Addf("Signed by", "%s, key SHA-256 %s", t.verified.SignerName, t.verified.Signer)
		l.Add("Token ID", string(t.verified.ID))
	}
	if len(t.Extra) > 0 {
		l.Add("Other Claims", indented(t.Extra))
	}
	l.Add("Standard Claims", indented(only(t.raw, "iss", "sub", "aud", "exp", "nbf", "iat", "jti")))
	_, err := fmt.Printf("%s\n\n%s", cli.Printable(heading), l)
	return err
}

// addClaims adds Choria's claims, in Choria's order.
func (t *shown) addClaims(l *cli.Labels) {
	c := &t.Claims
	token := "not set"
	if c.Token != "" {
		token = "set"
	}
	l.Add("Token", token)
	l.Addf("Secure", "%t", c.Secure)
	l.AddIf("SRV Domain", c.SRVDomain)
	l.AddIf("URLS", strings.Join(c.URLs(), ", "))
	l.Addf("Provisioning by default", "%t", c.Default)
	l.AddIf("Provisioning Registration Data", c.Registration)
	l.AddIf("Provisioning Facts", c.Facts)
	l.AddIf("Broker Username", c.Username)
	if c.Password != "" {
		l.Add("Broker Password", "set")
	}
	l.Add("Organization", c.Organization)
	if c.ProtocolV2 {
		l.Add("Using version 2 Protocol", "true")
	}
	if c.AllowUpdate {
		l.Add("Server Version Upgrades", "true")
	}
	if !c.Provisioning() {
		l.Addf("Purpose", "%q, so nodes do not accept it for provisioning", c.Purpose)
	}
	extensions := maps.Clone(c.Extensions)
	delete(extensions, "muster") // shown in words
	if len(extensions) > 0 {
		l.Add("Extensions", indented(extensions))
	}
}

func (t *shown) addLimits(l *cli.Labels) {
	if t.Limits.Uses > 0 {
		l.Addf("Uses", "%d", t.Limits.Uses)
	}
	l.AddIf("Identities", verb.Joined(t.Limits.Identities))
	l.AddIf("Site", string(t.Limits.Site))
	if t.Limits.Seal != "" {
		l.Add("Sealing Key", t.Limits.Seal)
		if key, err := seal.ParsePublicKey(t.Limits.Seal); err == nil {
			l.Add("Sealing Key ID", key.ID())
		} else {
			l.Addf("Sealing Key ID", "none: %v", err)
		}
	}
	l.AddIf("CA Certificate SHA-256", t.Limits.CA)
}

func (t *shown) addTimes(l *cli.Labels) {
	if at := t.NotBefore; at.After(t.now) {
		l.Addf("Valid From", "%s (in %s)", verb.Instant(at), span.Format(at.Sub(t.now)))
	}
	switch at := t.Expiry(); {
	case at.IsZero():
		l.Add("Expires At", "never")
	case at.After(t.now):
		l.Addf("Expires At", "%s (in %s)", verb.Instant(at), span.Format(at.Sub(t.now)))
	default:
		l.Addf("Expires At", "%s (expired %s ago)", verb.Instant(at), span.Format(t.now.Sub(at)))
	}
}

func indented(value any) string {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(cli.PrintableJSON(b))
}
