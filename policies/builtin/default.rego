# The policy that muster starts with.
#
# A machine gets in if it has been here before, if an operator wrote its name
# on the allow-list, or if its token was signed for names like its own. Any other
# machine waits until an operator has looked at it: a token lies on every
# machine of a fleet, so holding one says nothing about who somebody is.
#
# docs/policies.md of the source lists the members of `input`. To change this policy, change the
# tests beside it first; muster loads nothing whose tests fail.
package muster.enroll

default allow := false

# The machine is on record, and the provisioner has checked that this key may
# speak for it: by its certificate, which it may be renewing, by an earlier key
# of its own, by an operator's grant, or by a one-time token for exactly this
# name.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# The allow-list has an entry for it that has not expired.
allow if input.allow != null

# Its token names the machines that it is for, and the provisioner has checked
# that this is one of them. "*" names nobody: it is the same as no name.
allow if {
	some pattern in input.token.identities
	pattern != "*"
}

# Everybody else waits for an operator, who writes an allow-list entry.
approval if not allow

reasons contains "never seen before, and neither the allow-list nor the token names it" if approval

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
