package jwt

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/jwt"
)

const signHelp = `Writes a new token, which says where the brokers are, holds the secret that machines
share with the provisioner, and may be limited: to uses, names, a site, a time.

  %[1]s sign provisioning.jwt signer-key.pem --insecure --token-file secret \
    --urls broker.example.net:4222 --default --ca ca/root.pem --seal seal.pub
  %[1]s sign web.jwt signer-key.pem --token-file secret --srv example.net \
    --uses 20 --identity 'web*.example.net' --validity 30d`

// Sizes from which a token may not fit into the line with which a node connects
// to a broker that is not muster's: nats-server reads 4,096 bytes
// (max_control_line), about 200 of which are not the token, 314 of them where it
// is sealed, which makes it a third longer as well.
// In plain 2,600 leaves room for a user and a password.
const (
	warnTokenBytes  = 2600
	warnSealedBytes = 2500
)

// signFlags are the flags of sign.
type signFlags struct {
	claims              jwt.Claims // those that are as a flag says
	limits              jwt.Limits // likewise
	insecure            bool
	secret, secretFile  string
	urls, identities    []string
	extensions          string
	validity, notBefore string
	ca, seal            string
}

func (v *command) addSignFlags(c *kingpin.CmdClause) {
	s := &v.sign
	flag := func(name, help string) *kingpin.FlagClause { return v.flag(c, "Sign", name, help) }
	flag("insecure", "provision without TLS, as machines have no certificates yet. The default; see also --no-insecure.").Default("true").BoolVar(&s.insecure)
	flag("token", "secret that guards the machine's provisioning verbs; asked for if absent. Others see it in the list of processes: prefer --token-file.").
		PlaceHolder("SECRET").StringVar(&s.secret)
	flag("token-file", "file with the secret.").PlaceHolder("FILE").StringVar(&s.secretFile)
	flag("urls", "brokers, host:port with commas between them; may be repeated.").PlaceHolder("URLS").StringsVar(&s.urls)
	flag("srv", "domain whose SRV records name the brokers, instead of --urls.").PlaceHolder("DOMAIN").StringVar(&s.claims.SRVDomain)
	flag("default", "provision unless the machine's configuration says not to.").BoolVar(&s.claims.Default)
	flag("registration", "file on the machine to publish regularly.").PlaceHolder("FILE").StringVar(&s.claims.Registration)
	flag("facts", "file on the machine with its facts.").PlaceHolder("FILE").StringVar(&s.claims.Facts)
	flag("username", "broker user while provisioning.").PlaceHolder("NAME").StringVar(&s.claims.Username)
	flag("password", "broker password while provisioning.").PlaceHolder("SECRET").StringVar((*string)(&s.claims.Password))
	flag("org", "organization.").Default(jwt.DefaultOrganization).StringVar(&s.claims.Organization)
	flag("extensions", "further claims, a JSON object.").PlaceHolder("JSON").StringVar(&s.extensions)
	flag("validity", "how long the token is valid, such as 1y, 30d or 12h.").Default("1y").StringVar(&s.validity)
	flag("not-before", "when it becomes valid: an instant such as 2027-01-31T12:00:00Z, or a duration from now.").PlaceHolder("WHEN").StringVar(&s.notBefore)
	cli.Int(flag("uses", "how many machines may enroll with it; any number if absent.").PlaceHolder("N"), &s.limits.Uses)
	flag("identity", "pattern of the machines that may use it, such as web*.example.net; may be repeated.").PlaceHolder("GLOB").StringsVar(&s.identities)
	flag("site", "only site where it may be used.").PlaceHolder("NAME").StringVar((*string)(&s.limits.Site))
	flag("ca", "certificate of the authority that machines shall insist on, PEM.").PlaceHolder("FILE").StringVar(&s.ca)
	flag("seal", "public key to which machines seal token and requests, so that no listener can read them: the seal.pub that init made, or its text.").
		PlaceHolder("FILE").StringVar(&s.seal)
	flag("protocol-v2", "Choria's protocol version 2.").BoolVar(&s.claims.ProtocolV2)
	flag("upgrade", "allow upgrades in place.").BoolVar(&s.claims.AllowUpdate)
}

// checkSign returns what is wrong with the command line of sign.
func (v *command) checkSign() error {
	_, _, err := v.claims()
	return errors.Join(v.refuse("sign"), err)
}

// runSign signs a token into a file, or leaves no file.
func (v *command) runSign(ctx context.Context) error {
	claims, limits, err := v.claims()
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
	if err := signing.Pin(&limits, v.sign.ca, v.sign.seal); err != nil {
		return err
	}
	if err := claims.SetLimits(limits); err != nil {
		return err
	}
	key, err := signing.Key(ctx, v.key, v.passphraseFile, signing.SignerRemedy)
	if err != nil {
		return err
	}
	if claims.Token, err = v.readSecret(ctx); err != nil {
		return err
	}
	text, err := jwt.Sign(key, claims)
	if err != nil {
		return err
	}
	warnLong(len(text), claims)
	if err := cli.WriteNew(v.file, []byte(text), 0o600, v.force); err != nil {
		return err
	}
	verb.Say("Saved token to %s, use '%s view %s' to view it", v.file, v.name, v.file)
	return nil
}

// readSecret returns the secret for the token from where the flags say, or asks.
func (v *command) readSecret(ctx context.Context) (wire.Secret, error) {
	if v.given("token") {
		return wire.Secret(v.sign.secret), nil
	}
	if v.given("token-file") {
		b, err := keyfile.ReadLine(v.sign.secretFile)
		return wire.Secret(b), err
	}
	b, err := cli.AskSecretTwice(ctx, os.Stdin, os.Stderr, "Secret for the token: ")
	return wire.Secret(b), err
}

// warnLong warns of a token that may not fit into the line with which a machine
// connects.
func warnLong(n int, claims jwt.Claims) {
	limit := warnTokenBytes
	if l, err := claims.Limits(); err == nil && l.Seal != "" {
		limit = warnSealedBytes
	}
	if n > limit {
		verb.Say("warning: the token has %d bytes; above %d a broker with NATS's default max_control_line of 4096 "+
			"may refuse the connection (muster's own brokers take 16384)", n, limit)
	}
}

// sameFile reports whether both paths lead to one file.
func sameFile(a, b string) bool {
	fa, noA := os.Stat(a)
	fb, noB := os.Stat(b)
	return noA == nil && noB == nil && os.SameFile(fa, fb)
}
