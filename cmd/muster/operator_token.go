package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// operatorTokenVerb is "muster operator token".
type operatorTokenVerb struct {
	name, key, installation, ttl string
	keys                         keyFlags
}

const operatorSignHelp = `Prints a token by which you are the operator NAME over HTTPS, for a while, on every
provisioner of one installation. No provisioner is asked. It is a secret.

  muster operator token anna --key anna-key.pem \
    --installation h0Jc4YzqC1bQm6tVgX9wKd > anna.jwt
  muster node revoke web1.example.net --why stolen \
    --url https://prov1:8443 --token-file anna.jwt --credential roots.pem

roots.pem has the installation's roots, as /v1/ca.pem gives them.`

func addOperatorToken(parent *kingpin.CmdClause, all verbs) {
	v := &operatorTokenVerb{}
	c := parent.Command("token", "Sign a token to operate with.").HelpLong(operatorSignHelp)
	c.Arg("name", "The operator's name.").Required().StringVar(&v.name)
	c.Flag("key", "The operator's private key; the file of --credential will do.").Required().PlaceHolder("FILE").StringVar(&v.key)
	c.Flag("installation", "Id of the installation, as 'muster operator add', 'muster status' and /v1/ca say it.").Required().PlaceHolder("ID").StringVar(&v.installation)
	c.Flag("ttl", "How long it is good, as 15m; 1h at most.").Default("15m").StringVar(&v.ttl)
	v.keys.add(c)
	all.Check(c, func() error { _, err := v.check(); return err })
	all[c.FullCommand()] = v.run
}

// check returns the life of the token, or all that is wrong with the flags.
func (v *operatorTokenVerb) check() (time.Duration, error) {
	ttl, err := cli.DurationOf("ttl", v.ttl, time.Second, jwt.MaxOperatorTTL)
	if !wire.ValidConnectionName(v.installation) { // of the same form, see [wire.NewID]; a token for another name is refused everywhere
		err = errors.Join(err, fmt.Errorf("--installation is %.80q, want the id of %d characters that `muster operator add`, `muster status` and /v1/ca say", v.installation, wire.ConnectionNameChars))
	}
	return ttl, errors.Join(err, provisioner.CheckOperatorName(v.name))
}

func (v *operatorTokenVerb) run(ctx context.Context) error {
	ttl, err := v.check()
	if err != nil {
		return err
	}
	text, err := readKey(ctx, v.key)
	if err != nil {
		return orMissing(err, "give the key of which `muster operator add --key` has the public half, or the file that `muster operator add --certificate` wrote")
	}
	key, err := jwt.ParsePrivateKey(text, func() ([]byte, error) {
		if v.keys.passphraseFile != "" {
			return readLine(ctx, v.keys.passphraseFile)
		}
		return askPassphrase(ctx, v.key)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", v.key, err)
	}
	now := time.Now()
	token, err := jwt.SignOperator(key, jwt.OperatorClaims{Operator: v.name, Audience: v.installation, ID: jwt.NewJTI(), IssuedAt: now, ExpiresAt: now.Add(ttl)})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, token)
	return err
}
