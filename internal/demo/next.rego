# What the demo's operators think of: a shadow policy, which decides nothing.
package muster.enroll

deny contains "databases belong into ams1" if {
	input.facts.role == "db"
	input.facts.datacenter != "ams1"
}
