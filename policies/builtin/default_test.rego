package muster.enroll_test

import data.muster.enroll

# A new node, with a token for any name.
stranger := {
	"identity": "web1.example.net",
	"proof": "token",
	"token": {"identities": []},
	"csr": {
		"common_name": "web1.example.net",
		"dns_names": ["web1.example.net"],
		"ip_addresses": [],
		"uris": [],
		"emails": [],
	},
	"facts": {},
	"node": {"state": "none", "reason": "new", "serial": ""},
	"allow": null,
}

with_reason(reason) := object.union(stranger, {"node": {"state": "applied", "reason": reason, "serial": "0a"}})

with_csr(names) := object.union(stranger, {
	"csr": names,
	"allow": {"pattern": "web*.example.net", "comment": ""},
})

test_stranger_waits_for_approval if {
	not enroll.allow with input as stranger
	enroll.approval with input as stranger
	count(enroll.reasons) == 1 with input as stranger
	count(enroll.deny) == 0 with input as stranger
}

test_known_node_is_allowed if {
	every reason in ["replay", "continue", "continuity", "grant", "one_time_token", "renew"] {
		enroll.allow with input as with_reason(reason)
		not enroll.approval with input as with_reason(reason)
	}
}

test_reason_of_a_later_version_waits if {
	not enroll.allow with input as with_reason("vouched_for")
	enroll.approval with input as with_reason("vouched_for")
}

test_retired_node_is_a_stranger if {
	retired := object.union(stranger, {"node": {"state": "retired", "reason": "new", "serial": "0a"}})
	not enroll.allow with input as retired
	enroll.approval with input as retired
}

test_allow_list_lets_in if {
	listed := object.union(stranger, {"allow": {"pattern": "web*.example.net", "comment": "rack 4"}})
	enroll.allow with input as listed
	not enroll.approval with input as listed
	count(enroll.reasons) == 0 with input as listed
}

test_stranger_without_a_token_waits if {
	tokenless := object.union(stranger, {"proof": "none"})
	not enroll.allow with input as tokenless
	enroll.approval with input as tokenless
	enroll.allow with input as object.union(tokenless, {"allow": {"pattern": "web*.example.net", "comment": ""}})
}

test_token_for_names_lets_in if {
	named := object.union(stranger, {"token": {"identities": ["web*.example.net"]}})
	enroll.allow with input as named
	not enroll.approval with input as named
}

test_token_for_every_name_does_not_let_in if {
	named := object.union(stranger, {"token": {"identities": ["*"]}})
	not enroll.allow with input as named
	enroll.approval with input as named
}

test_own_names_are_fine if {
	count(enroll.deny) == 0 with input as with_csr({"common_name": "", "dns_names": []})
	count(enroll.deny) == 0 with input as with_csr({})
}

test_other_names_are_denied[what] if {
	some what, names in {
		"common name": {"common_name": "db1.example.net"},
		"DNS name": {"dns_names": ["web1.example.net", "db1.example.net"]},
		"wildcard": {"dns_names": ["*.example.net"]},
		"own name in upper case": {"dns_names": ["WEB1.example.net"]},
		"IP address": {"ip_addresses": ["192.0.2.1"]},
		"URI": {"uris": ["spiffe://example.net/broker/b1"]},
		"e-mail address": {"emails": ["root@example.net"]},
	}
	count(enroll.deny) == 1 with input as with_csr(names)
}
