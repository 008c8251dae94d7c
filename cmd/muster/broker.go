package main

import "github.com/alecthomas/kingpin/v2"

// addBroker adds "muster broker" with its verbs.
func addBroker(app *kingpin.Application, all verbs) {
	c := app.Command("broker", "Configure and run brokers outside of the provisioner's process.").
		HelpLong("A provisioner has a broker inside and needs none of this. Several provisioners, or a\nsite of its own, use nats-servers that these verbs configure.")
	addBrokerConfig(c, all)
	addBrokerCertificate(c, all)
	addBrokerRun(c, all)
}
