# Defers new nodes during a freeze.
#
# data.json lists the freezes and their sites. During a freeze the provisioner
# tells nodes without a record to retry later. Nodes on record can renew and enroll.
package muster.enroll

now := time.parse_rfc3339_ns(input.time)

freeze contains f if {
	some f in data.freezes
	time.parse_rfc3339_ns(f.from) <= now
	now < time.parse_rfc3339_ns(f.until)
	input.provisioner.site in f.sites
}

defer if {
	input.node.reason == "new"
	count(freeze) > 0
}

reasons contains sprintf("%s, until %s", [f.why, f.until]) if {
	defer
	some f in freeze
}
