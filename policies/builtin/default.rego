# The default policy.
#
# A node is admitted if it is on record, if the allow-list covers its name, or if its token was signed for such names.
# Any other node waits for an operator: every node of a fleet has the token, so the token proves no identity.
#
# docs/policies.md of the source lists the members of `input`. To change this policy, change the tests beside it first;
# muster loads no policy whose tests fail.
package muster.enroll

default allow := false

# The node is on record, and the provisioner has verified that this key may have its name: by its certificate, which it
# may be renewing, by an earlier key of the node, by an operator's grant, or by a one-time token for exactly this name.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# An unexpired entry of the allow-list covers the name. Without a token only an entry for such requests does.
allow if input.allow != null

# The token lists names, and the provisioner has verified that this is one of them. "*" does not count: it covers all.
allow if {
	some pattern in input.token.identities
	pattern != "*"
}

# Other nodes wait for an operator.
approval if not allow

reasons contains "never seen before, and neither the allow-list nor the token names it" if approval

# A node may request its own name only. No certificate would have other names anyway, so the node is misconfigured or
# hostile.
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
