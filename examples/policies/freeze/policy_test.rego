package muster.freeze_test

import data.muster.enroll

freezes := [{
	"why": "moving racks",
	"from": "2026-06-01T00:00:00Z",
	"until": "2026-06-02T00:00:00Z",
	"sites": ["ams"],
}]

request(time, site, reason) := {
	"identity": "web1.example.net",
	"time": time,
	"provisioner": {"site": site},
	"node": {"state": "none", "reason": reason},
}

test_new_machine_is_told_to_come_back if {
	machine := request("2026-06-01T12:00:00Z", "ams", "new")
	enroll.defer with input as machine with data.freezes as freezes
	"moving racks, until 2026-06-02T00:00:00Z" in enroll.reasons with input as machine with data.freezes as freezes
}

test_not_told[what] if {
	some what, machine in {
		"before": request("2026-05-31T23:59:59Z", "ams", "new"),
		"at the end": request("2026-06-02T00:00:00Z", "ams", "new"),
		"elsewhere": request("2026-06-01T12:00:00Z", "lon", "new"),
		"on record": request("2026-06-01T12:00:00Z", "ams", "continue"),
	}
	not enroll.defer with input as machine with data.freezes as freezes
}

test_edges if {
	enroll.defer with input as request("2026-06-01T00:00:00Z", "ams", "new") with data.freezes as freezes
	enroll.defer with input as request("2026-06-01T23:59:59Z", "ams", "new") with data.freezes as freezes
}

# A date that cannot be read stops everybody, so it is found out here.
test_our_own_dates_can_be_read if {
	every f in data.freezes {
		time.parse_rfc3339_ns(f.from) < time.parse_rfc3339_ns(f.until)
		count(f.sites) > 0
	}
}
