package main

import "github.com/alecthomas/kingpin/v2"

const policyHelp = `A policy is Rego, package muster.enroll: policies/README.md says what it sees and what
it is to say. test and eval need no provisioner, replay asks one what it has seen.`

// addPolicy adds "muster policy" with its verbs.
func addPolicy(app *kingpin.Application, all verbs) {
	c := app.Command("policy", "Try policies out, and have them read again.").HelpLong(policyHelp)
	addPolicyTest(c, all)
	addPolicyEval(c, all)
	addPolicyReplay(c, all)
	addPolicyReload(c, all)
}
