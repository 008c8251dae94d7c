package muster.deny_names_test

import data.muster.enroll

request(identity, csr) := {"identity": identity, "csr": csr}

plain := request("web1.example.net", {"common_name": "web1.example.net", "dns_names": ["web1.example.net"]})

# Other policies beside this one may have reasons of their own.
about_names contains reason if {
	some reason in enroll.deny
	contains(reason, "is not for machines")
}

test_plain_name if {
	count(about_names) == 0 with input as plain
}

test_name_in_the_middle if {
	machine := request("web1.choria.example.net", {"common_name": "web1.choria.example.net", "dns_names": []})
	count(about_names) == 0 with input as machine
}

test_denied[what] if {
	some what, machine in {
		"identity": request("bob.mcollective", {"common_name": "bob.mcollective", "dns_names": []}),
		"common name": request("web1.example.net", {"common_name": "bob.choria", "dns_names": []}),
		"one of several DNS names": request("web1.example.net", {"common_name": "", "dns_names": ["web1.example.net", "bob.mcollective"]}),
		"privileged": request("web1.example.net", {"common_name": "bob.privileged.choria", "dns_names": []}),
		"upper case": request("web1.example.net", {"common_name": "BOB.Privileged.MCollective", "dns_names": []}),
	}
	count(about_names) > 0 with input as machine
}
