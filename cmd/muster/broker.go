package main

import "github.com/alecthomas/kingpin/v2"

// addBroker adds "muster broker" with its verbs.
func addBroker(app *kingpin.Application, all verbs) {
	c := app.Command("broker", "Configure and run brokers outside of the provisioner's process.")
	addBrokerConfig(c, all)
	addBrokerCertificate(c, all)
	addBrokerRun(c, all)
}
