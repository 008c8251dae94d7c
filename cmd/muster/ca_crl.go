package main

import (
	"context"
	"encoding/pem"
	"net/http"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner"
)

// caCRLVerb is "muster ca crl".
type caCRLVerb struct{ operator }

const caCRLHelp = `Prints the certificate revocation lists of the running provisioner in PEM: the
present issuing CA's, and then those of previous ones whose keys ca.previous
names. They also lie as crl.pem in the data directory, always the newest, for
brokers and others that read files.

  muster ca crl > crl.pem
  muster ca crl --json`

func addCACRL(parent *kingpin.CmdClause, all verbs) {
	v := &caCRLVerb{}
	c := parent.Command("crl", "Print the certificate revocation lists.").HelpLong(caCRLHelp)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *caCRLVerb) run(ctx context.Context) error {
	var crls []provisioner.CRL
	if err := v.ask(ctx, http.MethodGet, "/v1/crl", nil, &crls); err != nil {
		return err
	}
	return v.print(crls, func() error {
		for _, c := range crls {
			if err := pem.Encode(os.Stdout, &pem.Block{Type: "X509 CRL", Bytes: c.DER}); err != nil {
				return err
			}
		}
		return nil
	})
}
