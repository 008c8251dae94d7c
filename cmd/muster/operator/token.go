package operator

import (
	"context"
	"fmt"
	"os"
	"time"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
)

//nolint:gosec // help, and no credential
const tokenHelp = `Prints a token with which you are the operator NAME over HTTPS, for up to an hour, on
every provisioner of one installation. No provisioner is asked. The token is secret.

  muster operator token anna --key anna-key.pem \
    --installation h0Jc4YzqC1bQm6tVgX9wKd > anna.jwt
  muster node revoke web1.example.net --why stolen \
    --url https://prov1:8443 --login anna.jwt --login roots.pem

roots.pem has the installation's root certificates, as /v1/ca.pem serves them.`

// keyRemedy tells which file has an operator's key.
const keyRemedy = "give the private key to the public key of `muster operator add --public-key`, " +
	"or the file that `muster operator add --certificate` wrote"

func addToken(parent *kingpin.CmdClause, all cli.Verbs) {
	var name, file, installation string
	var ttl time.Duration
	var keys verb.KeyFlags
	c := parent.Command("token", "Sign a token for --login.").HelpLong(tokenHelp)
	cli.Arg(c.Arg("name", "Name of the operator.").Required(), &name, cli.Checked(trust.CheckOperatorName))
	cli.Flag(c, "key").Required().StringVar(&file)
	cli.Parse(cli.Flag(c, "installation").Required(), &installation, cli.Checked(checkInstallation))
	cli.Duration(cli.Flag(c, "validity").Default("15m"), &ttl, time.Second, jwt.MaxOperatorTTL)
	keys.AddFlags(c)
	all[c.FullCommand()] = func(ctx context.Context) error {
		key, err := signing.Key(ctx, file, keys.PassphraseFile, keyRemedy)
		if err != nil {
			return err
		}
		now := time.Now()
		token, err := jwt.SignOperator(key, jwt.OperatorClaims{
			Operator:  name,
			Audience:  installation,
			ID:        jwt.NewJTI(),
			IssuedAt:  now,
			ExpiresAt: now.Add(ttl),
		})
		if err == nil {
			_, err = fmt.Fprintln(os.Stdout, token)
		}
		return err
	}
}

// checkInstallation refuses a text that does not have the form of [wire.NewID].
func checkInstallation(id string) error {
	if wire.ValidConnectionName(id) { // of the same form
		return nil
	}
	return fmt.Errorf("--installation is %.80q, want the id of %d characters that `muster operator add`, "+
		"`muster status` and /v1/ca say", id, wire.ConnectionNameChars)
}
