package muster.clones_test

import data.muster.enroll

machine(cloned) := {
	"identity": "web1.example.net",
	"node": {"state": "provisioned", "reason": "replay", "serial": "0a", "cloned": cloned},
}

test_clones_are_denied if {
	count(enroll.deny) == 1 with input as machine(true)
}

test_others_are_not if {
	count(enroll.deny) == 0 with input as machine(false)
}

test_it_says_why if {
	"two live machines use the key of this machine" in enroll.deny with input as machine(true)
}
