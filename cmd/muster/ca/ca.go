// Package ca has "muster ca": the certificate authority and its revocation lists.
package ca

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("ca", "Show and replace the certificate authority.").
		HelpLong("The roots and issuing certificates that provisioner.yaml names, and their revocation\nlists. show and roll read and write files; crl asks the provisioner.")
	addShow(c, all)
	addRoll(c, all)
	addCRL(c, all)
}

const showHelp = `Prints the certificates that the configuration names: the present authority's and
those of the ones before it. No key is read. Whether one before is still needed,
the log of the running provisioner says.

  muster ca show
  muster ca show --json --config prov/provisioner.yaml`

func addShow(parent *kingpin.CmdClause, all cli.Verbs) {
	var s verb.Setup
	c := parent.Command("show", "Show roots, issuing certificates and their ends.").HelpLong(showHelp)
	s.AddFlags(c)
	all[c.FullCommand()] = func(context.Context) error {
		authorities, err := setup.ReadAuthorities(s.Config)
		if err != nil {
			return verb.OrNoSetup(s.Config, err)
		}
		return verb.Show(&s.Output, authorities, func(certificates []setup.CertificateInfo) io.WriterTo {
			t := cli.NewTable("", "certificate", "valid until", "sha256")
			for _, c := range certificates {
				end := c.NotAfter.UTC().Format(time.DateOnly)
				if time.Now().After(c.NotAfter) {
					end += " (expired)"
				}
				t.Add(c.Authority, c.What+" "+c.Name, end, c.Fingerprint)
			}
			return t
		})
	}
}

const crlHelp = `Prints the certificate revocation lists of the running provisioner in PEM: the
present issuing CA's, and then those of previous ones whose keys ca.previous
names. They also lie as crl.pem in the data directory, always the newest, for
brokers and others that read files.

  muster ca crl > crl.pem
  muster ca crl --config prov/provisioner.yaml`

func addCRL(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("crl", "Print the certificate revocation lists.").HelpLong(crlHelp)
	o := &verb.Operator{}
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all[c.FullCommand()] = func(ctx context.Context) error {
		client, err := o.Client()
		if err != nil {
			return err
		}
		crls, err := client.CRLs(ctx)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, crls)
		return errors.Join(err, crls.Close())
	}
}
