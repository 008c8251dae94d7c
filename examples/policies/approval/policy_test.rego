package muster.enroll_test

import data.muster.enroll

request(identity, pattern) := {
	"identity": identity,
	"node": {"state": "none", "reason": "new"},
	"allow": {"pattern": pattern, "comment": ""},
}

unlisted(identity) := object.union(request(identity, ""), {"allow": null})

test_web_by_pattern if {
	enroll.allow with input as request("web1.example.net", "web*.example.net")
	not enroll.approval with input as request("web1.example.net", "web*.example.net")
}

test_web_unlisted_waits if {
	not enroll.allow with input as unlisted("web1.example.net")
	enroll.approval with input as unlisted("web1.example.net")
	enroll.reasons == {`no allow-list entry matches "web1.example.net"`} with input as unlisted("web1.example.net")
}

test_vault_by_pattern_waits if {
	not enroll.allow with input as request("vault1.example.net", "**.example.net")
	enroll.approval with input as request("vault1.example.net", "**.example.net")
	count(enroll.reasons) == 1 with input as request("vault1.example.net", "**.example.net")
}

test_vault_by_name if {
	enroll.allow with input as request("vault1.example.net", "vault1.example.net")
	not enroll.approval with input as request("vault1.example.net", "vault1.example.net")
}

test_vault_of_another_name_waits if {
	enroll.approval with input as request("vault-2.example.net", "vault1.example.net")
}

test_known_vault_comes_back if {
	every reason in ["continue", "renew"] {
		known := object.union(unlisted("vault1.example.net"), {"node": {"state": "applied", "reason": reason}})
		enroll.allow with input as known
		not enroll.approval with input as known
	}
}

test_lifetimes if {
	enroll.certificate.ttl == "72h" with input as unlisted("vault1.example.net")
	enroll.certificate.ttl == "720h" with input as unlisted("web1.example.net")
}
