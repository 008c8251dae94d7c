# The open policy, for labs and demonstrations: `init --trust-first-use`.
#
# Every machine with a good token gets in under any name that was never seen.
# A token lies on every machine of a fleet, so whoever is root on one of them
# can claim any name that is still free. Machines that are on record keep their
# names: another key needs what it needs under the default policy. Use that one,
# default.rego, for everything that matters.
#
# docs/policies.md of the source lists the members of `input`. To change this policy, change the
# tests beside it first; muster loads nothing whose tests fail.
package muster.enroll

default allow := false

# A name that was never seen, or was retired, belongs to whoever comes first.
allow if input.node.reason == "new"

# The machine is on record, and the provisioner has checked that this key may
# speak for it: by its certificate, which it may be renewing, by an earlier key
# of its own, by an operator's grant, or by a one-time token for exactly this
# name.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# Only a reason that this policy does not know waits for an operator.
approval if not allow

reasons contains sprintf("this policy does not know the reason %q", [input.node.reason]) if approval

# A machine asks for its own name and for nothing else. No certificate would
# have the other names anyway, so who asks is misconfigured or up to something.
deny contains sprintf("the certificate request has the common name %q", [input.csr.common_name]) if {
	not input.csr.common_name in {"", input.identity}
}

deny contains sprintf("the certificate request has the DNS name %q", [name]) if {
	some name in input.csr.dns_names
	name != input.identity
}

deny contains sprintf("the certificate request has the IP address %q", [address]) if {
	some address in input.csr.ip_addresses
}

deny contains sprintf("the certificate request has the URI %q", [uri]) if {
	some uri in input.csr.uris
}

deny contains sprintf("the certificate request has the e-mail address %q", [address]) if {
	some address in input.csr.emails
}

# 30 days; machines renew theirs long before.
certificate := {"ttl": "720h"}
