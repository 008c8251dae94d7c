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
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/jwt"
)

const signHelp = `Writes a new token. It has the addresses of the brokers and the secret that nodes and
provisioner share, and may be limited: to a number of nodes, to names, a site, a time.

  %[1]s sign provisioning.jwt signer-key.pem --secret-file secret \
    --urls broker.example.net:4222 --default --ca ca/root.pem --seal seal.pub
  %[1]s sign web.jwt signer-key.pem --secret-file secret --srv example.net \
    --uses 20 --identity 'web*.example.net' --validity 30d`

// Sizes above which a token may not fit into a node's CONNECT line. By default nats-server reads 4,096 bytes
// (max_control_line), of which about 200 are not the token. Sealing adds 114, and makes the token a third longer.
const (
	warnTokenBytes  = 2600
	warnSealedBytes = 2500
)

// signFlags are the flags of sign.
type signFlags struct {
	claims              jwt.Claims // set directly by flags
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
	flag := func(name string) *kingpin.FlagClause { return v.flag(c, "sign", name) }
	flag("insecure").Default("true").BoolVar(&s.insecure)
	flag("token").StringVar(&s.secret)
	flag("secret-file").StringVar(&s.secretFile)
	flag("urls").StringsVar(&s.urls)
	flag("srv").StringVar(&s.claims.SRVDomain)
	flag("default").BoolVar(&s.claims.Default)
	flag("registration").StringVar(&s.claims.Registration)
	flag("facts").StringVar(&s.claims.Facts)
	flag("username").StringVar(&s.claims.Username)
	flag("password").StringVar((*string)(&s.claims.Password))
	flag("org").Default(jwt.DefaultOrganization).StringVar(&s.claims.Organization)
	flag("extensions").StringVar(&s.extensions)
	flag("validity").Default("1y").StringVar(&s.validity)
	flag("not-before").StringVar(&s.notBefore)
	cli.Int(flag("uses"), &s.limits.Uses)
	flag("identity").StringsVar(&s.identities)
	flag("site").StringVar((*string)(&s.limits.Site))
	flag("ca").StringVar(&s.ca)
	flag("seal").StringVar(&s.seal)
	flag("protocol-v2").BoolVar(&s.claims.ProtocolV2)
	flag("upgrade").BoolVar(&s.claims.AllowUpdate)
}

func (v *command) checkSign() error {
	_, _, err := v.claims()
	return errors.Join(v.refuse("sign"), err)
}

// runSign signs a token into a file. If it fails, no file appears.
func (v *command) runSign(ctx context.Context) error {
	claims, limits, err := v.claims()
	if err != nil {
		return err
	}
	// Checked before any question, so that no answer is wasted.
	if err := cli.CheckNew(v.file, v.force); err != nil {
		return err
	}
	if sameFile(v.file, v.key) {
		return fmt.Errorf("%s is both the token to write and the key to sign with: "+
			"give another file for the token", v.file)
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
	warnOpen(limits, claims.Secure)
	if err := cli.WriteNew(v.file, []byte(text), 0o600, v.force); err != nil {
		return err
	}
	verb.Say("Saved token to %s, use '%s view %s' to view it", v.file, v.name, v.file)
	return nil
}

// readSecret returns the secret of the token: from the flags, or from the terminal.
func (v *command) readSecret(ctx context.Context) (wire.Secret, error) {
	if v.given("token") {
		return wire.Secret(v.sign.secret), nil
	}
	if v.given("secret-file") {
		b, err := keyfile.ReadLine(v.sign.secretFile, inputfile.Typed)
		return wire.Secret(b), err
	}
	b, err := cli.AskSecretTwice(ctx, os.Stdin, os.Stderr, "Secret for the token: ")
	return wire.Secret(b), err
}

// warnLong warns of a token that may not fit into a node's CONNECT line.
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

// warnOpen says what a token does not protect.
func warnOpen(l jwt.Limits, secure bool) {
	switch {
	case l.Seal != "":
	case l.CA == "":
		verb.Say("warning: without --ca and --seal nodes take any provisioner for yours: the network between node " +
			"and broker can read the token and replace certificate, configuration and policies; " +
			"sign with --ca ca/root.pem --seal seal.pub")
	case !secure:
		verb.Say("warning: without --seal a listener between node and broker reads the token with its secret, the " +
			"facts and the configuration, but can replace none of what nodes get; sign with --seal seal.pub")
	}
}

func sameFile(a, b string) bool {
	fa, noA := os.Stat(a)
	fb, noB := os.Stat(b)
	return noA == nil && noB == nil && os.SameFile(fa, fb)
}
