// Package ca implements "muster ca": the certificate authority and its revocation lists.
package ca

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
	"muster/provisioner/ca"
	"muster/provisioner/operate"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("ca", "Show and make certificate authorities.").
		HelpLong("Root and issuing certificates of provisioner.yaml, and their revocation lists. roll\n" +
			"and puppet write files; crl, and show with --url, ask the provisioner.")
	addShow(c, all)
	addRoll(c, all)
	addPuppet(c, all)
	addCRL(c, all)
}

const showHelp = `Shows the certificates of the present authority, of previous ones and of Puppet's,
as provisioner.yaml names them, or with --url those of that provisioner. No key is
read. The log of the running provisioner says when a previous authority is no longer
needed.

  muster ca show
  muster ca show -o json --config prov/provisioner.yaml`

func addShow(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("show", "Show root and issuing certificates.").HelpLong(showHelp)
	verb.List(c, all, read, func(_ *verb.Operator, certificates []ca.CertificateInfo) verb.Shown {
		return &verb.Rows[ca.CertificateInfo]{Rows: certificates, Noun: "certificates", Columns: columns}
	})
}

var columns = []cli.Column[ca.CertificateInfo]{
	{Title: "CERTIFICATE", Value: func(c ca.CertificateInfo) any { return c.Name }},
	{Title: "KIND", Value: func(c ca.CertificateInfo) any { return c.What }},
	{Title: "AUTHORITY", Value: func(c ca.CertificateInfo) any { return c.Authority }},
	{Title: "EXPIRES", Value: func(c ca.CertificateInfo) any { return c.NotAfter }},
	{Title: "SHA-256", Value: func(c ca.CertificateInfo) any { return c.Fingerprint }},
	{Title: "ISSUER", Wide: true, Value: func(c ca.CertificateInfo) any { return c.Issuer }},
	{Title: "VALID FROM", Wide: true, Value: func(c ca.CertificateInfo) any { return c.NotBefore }},
	{Title: "KEY ID", Wide: true, Value: func(c ca.CertificateInfo) any { return c.KeyID }},
}

// read describes the certificates of the configuration, or of the provisioner at --url.
func read(ctx context.Context, o *verb.Operator) ([]ca.CertificateInfo, error) {
	if o.Remote() {
		info, err := verb.Get[*operate.AuthorityInfo](ctx, o, "/v1/ca")
		if err != nil {
			return nil, err
		}
		return info.Certificates, nil
	}
	certificates, err := setup.ReadAuthorities(o.Config)
	return certificates, verb.OrNoSetup(o.Config, err)
}

const crlHelp = `Prints the certificate revocation lists of the running provisioner in PEM: of the
present issuing certificate, then of previous ones whose keys ca.previous names, then
of Puppet's. The newest lists but Puppet's are also in crl.pem in the data directory,
for brokers and other programs.

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
