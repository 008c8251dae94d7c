package main

import "github.com/alecthomas/kingpin/v2"

// addCA adds "muster ca" with its verbs.
func addCA(app *kingpin.Application, all verbs) {
	c := app.Command("ca", "Show and replace the certificate authority.")
	addCAShow(c, all)
	addCARoll(c, all)
	addCACRL(c, all)
}
