package main

import "github.com/alecthomas/kingpin/v2"

const operatorHelp = `Operators on other machines reach the provisioner over HTTPS (api.listen in
provisioner.yaml), by a certificate or by tokens that they sign. What is said here
is in force on every provisioner of the installation within a second.`

// addOperator adds "muster operator" with its verbs.
func addOperator(app *kingpin.Application, all verbs) {
	c := app.Command("operator", "Say who may operate the fleet over HTTPS.").HelpLong(operatorHelp)
	addOperatorAdd(c, all)
	addOperatorList(c, all)
	addOperatorRemove(c, all)
	addOperatorToken(c, all)
}
