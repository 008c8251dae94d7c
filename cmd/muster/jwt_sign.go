package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/jwt"
)

// Sizes from which a token may not fit into the line with which a node connects
// to a broker that is not muster's: nats-server reads 4,096 bytes
// (max_control_line), about 200 of which are not the token, 314 of them where it
// is sealed, which makes it a third longer as well; see [seal.SealedTokenBytes].
// In plain 2,600 leaves room for a user and a password; chosen.
const (
	warnTokenBytes  = 2600
	warnSealedBytes = 2500
)

// signFlags are the flags that mean signing, so that a command line with one
// of them never views.
var signFlags = []string{
	"insecure", "token", "token-file", "urls", "srv", "default", "registration", "facts", "username", "password",
	"org", "extensions", "validity", "not-before", "uses", "identity", "site", "ca", "seal", "protocol-v2", "upgrade",
	"update", "vault", "passphrase-file", "force",
}

func (v *jwtVerb) addSignFlags(c *kingpin.CmdClause) {
	v.flag(c, "insecure", "Sign: provision without TLS, as machines have no certificates yet. The default; see also --no-insecure.").
		Default("true").BoolVar(&v.insecure)
	v.flag(c, "token", "Sign: secret that guards the machine's provisioning verbs; asked for if absent. Others see it in the list of processes: prefer --token-file.").
		PlaceHolder("SECRET").StringVar(&v.token)
	v.flag(c, "token-file", "Sign: file with the secret.").PlaceHolder("FILE").StringVar(&v.tokenFile)
	v.flag(c, "urls", "Sign: brokers, host:port with commas between them; may be repeated.").PlaceHolder("URLS").StringsVar(&v.urls)
	v.flag(c, "srv", "Sign: domain whose SRV records name the brokers, instead of --urls.").PlaceHolder("DOMAIN").StringVar(&v.srv)
	v.flag(c, "default", "Sign: provision unless the machine's configuration says not to.").BoolVar(&v.byDefault)
	v.flag(c, "registration", "Sign: file on the machine to publish regularly.").PlaceHolder("FILE").StringVar(&v.registration)
	v.flag(c, "facts", "Sign: file on the machine with its facts.").PlaceHolder("FILE").StringVar(&v.facts)
	v.flag(c, "username", "Sign: broker user while provisioning.").PlaceHolder("NAME").StringVar(&v.username)
	v.flag(c, "password", "Sign: broker password while provisioning.").PlaceHolder("SECRET").StringVar(&v.password)
	v.flag(c, "org", "Sign: organization.").Default(jwt.DefaultOrganization).StringVar(&v.org)
	v.flag(c, "extensions", "Sign: further claims, a JSON object.").PlaceHolder("JSON").StringVar(&v.extensions)
	v.flag(c, "validity", "Sign: how long the token is valid, such as 1y, 30d or 12h.").Default("1y").StringVar(&v.validity)
	v.flag(c, "not-before", "Sign: when it becomes valid: an instant such as 2027-01-31T12:00:00Z, or a duration from now.").
		PlaceHolder("WHEN").StringVar(&v.notBefore)
	cli.Int(v.flag(c, "uses", "Sign: how many machines may enroll with it; any number if absent.").PlaceHolder("N"), &v.uses)
	v.flag(c, "identity", "Sign: pattern of the machines that may use it, such as web*.example.net; may be repeated.").
		PlaceHolder("GLOB").StringsVar(&v.identities)
	v.flag(c, "site", "Sign: only site where it may be used.").PlaceHolder("NAME").StringVar(&v.site)
	v.flag(c, "ca", "Sign: certificate of the authority that machines shall insist on, PEM.").PlaceHolder("FILE").StringVar(&v.ca)
	v.flag(c, "seal", "Sign: public key to which machines seal token and requests, so that no listener can read them: the seal.pub that init made, or its text.").
		PlaceHolder("FILE").StringVar(&v.seal)
	v.flag(c, "protocol-v2", "Sign: Choria's protocol version 2.").BoolVar(&v.protocolV2)
	v.flag(c, "upgrade", "Sign: allow upgrades in place.").BoolVar(&v.upgrade)
	v.flag(c, "update", "Sign: Choria's earlier name of --upgrade.").Hidden().BoolVar(&v.upgrade)
	v.flag(c, "vault", "Sign: not supported.").Hidden().BoolVar(&v.vault)
}

// signing returns what is to be signed, without what has to be read or asked for,
// or all that is wrong with the command line.
func (v *jwtVerb) signing() (jwt.Claims, jwt.Limits, error) {
	claims, limits, mistakes := v.claims()
	return claims, limits, errors.Join(slices.Concat(v.refuse("sign", signFlags), v.nothingToSign(), mistakes)...)
}

// runSign signs a token into a file, or leaves no file.
func (v *jwtVerb) runSign(ctx context.Context) error {
	claims, limits, err := v.signing()
	if err != nil {
		return err
	}
	// Before anything is asked for: the answer would be wasted.
	if err := cli.CheckNew(v.file, v.force); err != nil {
		return err
	}
	if sameFile(v.file, v.key) {
		return fmt.Errorf("%s: is both the token to write and the key to sign with", v.file)
	}
	if err := pinned(ctx, &limits, v.ca, v.seal); err != nil {
		return err
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
	v.warnLong(len(text), claims)
	if err := cli.WriteNew(v.file, []byte(text), 0o600, v.force); err != nil {
		return err
	}
	cli.Say(os.Stderr, program, "Saved token to %s, use '%s view %s' to view it", v.file, v.name, v.file)
	return nil
}

// warnLong warns of a token that may not fit into the line with which a machine
// connects.
func (v *jwtVerb) warnLong(n int, claims jwt.Claims) {
	limit, is := warnTokenBytes, "the token has %d bytes"
	if l, err := claims.Limits(); err == nil && l.Seal != "" {
		limit, is = warnSealedBytes, fmt.Sprintf("the token has %%d bytes, and %d when it is sealed", seal.SealedTokenBytes(n))
	}
	if n <= limit {
		return
	}
	cli.Say(os.Stderr, program, "warning: "+is+"; above %d a broker with NATS's default max_control_line of 4096 "+
		"may refuse the connection (muster's own brokers take 16384)", n, limit)
}

// nothingToSign returns a mistake if no flag says what to sign. Then perhaps
// nothing was to be signed, and a file happens to be called like the verb.
func (v *jwtVerb) nothingToSign() []error {
	if v.given(signFlags...) {
		return nil
	}
	return []error{fmt.Errorf("this would sign the token %q with the private key %q, and no flag says what it is to hold; "+
		"if sign, provisioning, prov or p was meant as a file, write ./ in front of it", v.file, v.key)}
}

// certificatePin returns the SHA-256 of the one certificate in a file that --ca names.
func certificatePin(ctx context.Context, path string) (string, error) {
	b, err := readFile(ctx, path)
	if err != nil {
		return "", fmt.Errorf("--ca: %w", err)
	}
	blocks, err := keyfile.Blocks(b)
	if err != nil {
		return "", fmt.Errorf("--ca: %s: %w", path, err)
	}
	if len(blocks) == 0 || blocks[0].Type != "CERTIFICATE" {
		return "", fmt.Errorf("--ca: %s: no certificate in PEM", path)
	}
	if len(blocks) > 1 {
		return "", fmt.Errorf("--ca: %s: several PEM blocks, want the authority's certificate alone", path)
	}
	cert, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return "", fmt.Errorf("--ca: %s: %w", path, err)
	}
	if !cert.IsCA {
		return "", fmt.Errorf("--ca: %s: certificate of %q is not one of an authority", path, cert.Subject.CommonName)
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
