package main

import "github.com/alecthomas/kingpin/v2"

// addCA adds "muster ca" with its verbs.
func addCA(app *kingpin.Application, all verbs) {
	c := app.Command("ca", "Show and replace the certificate authority.").
		HelpLong("The roots and issuing certificates that provisioner.yaml names, and their revocation\nlists. show and roll read and write files; crl asks the provisioner.")
	addCAShow(c, all)
	addCARoll(c, all)
	addCACRL(c, all)
}
