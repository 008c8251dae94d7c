package main

import "github.com/alecthomas/kingpin/v2"

// addPolicy adds "muster policy" with its verbs.
func addPolicy(app *kingpin.Application, all verbs) {
	c := app.Command("policy", "Try policies out, and have them read again.")
	addPolicyTest(c, all)
	addPolicyEval(c, all)
	addPolicyReplay(c, all)
	addPolicyReload(c, all)
}
