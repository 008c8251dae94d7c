# Nobody new while a freeze lasts.
#
# data.json lists freezes: while one lasts, machines that were never seen are
# told to come back later. Those on record renew and return as always.
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
