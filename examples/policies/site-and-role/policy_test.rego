package muster.enroll_test

import data.muster.enroll

request(identity, site, facts) := {
	"identity": identity,
	"token": {"site": site},
	"facts": facts,
}

web1 := request("web1.ams.example.net", "ams", {"role": "web"})

test_allowed if {
	enroll.allow with input as web1
	count(enroll.deny) == 0 with input as web1
}

test_lifetime_by_role[role] if {
	some role, ttl in {"web": "720h", "db": "240h", "bastion": "24h"}
	machine := request(sprintf("%s7.lon.example.net", [role]), "lon", {"role": role})
	enroll.allow with input as machine
	enroll.certificate == {"ttl": ttl} with input as machine
}

test_configuration if {
	c := enroll.configuration with input as web1
	c.identity == "web1.ams.example.net"
	contains(c.brokers, "broker1.ams.example.net")
	c.collectives == "mcollective,web"
}

test_denied[what] if {
	some what, machine in {
		"role of another name": request("web1.ams.example.net", "ams", {"role": "db"}),
		"site of another token": request("web1.ams.example.net", "lon", {"role": "web"}),
		"no role": request("web1.ams.example.net", "ams", {}),
		"role is no text": request("web1.ams.example.net", "ams", {"role": ["web"]}),
		"unknown role": request("toaster1.ams.example.net", "ams", {"role": "toaster"}),
		"token for any site": request("web1.ams.example.net", "", {"role": "web"}),
		"unknown site": request("web1.par.example.net", "par", {"role": "web"}),
	}
	count(enroll.deny) > 0 with input as machine
}
