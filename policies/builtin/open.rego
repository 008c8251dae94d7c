# The open policy, for labs and demonstrations: `init --trust-first-use`.
#
# Every node with a valid token is admitted under any new name. Every node of a fleet has the token, so root on one of
# them can claim any free name. A Puppet agent without a token waits for an operator. Nodes on record keep their names, as under the default policy. Use default.rego outside
# of labs.
#
# docs/policies.md of the source lists the members of `input`. To change this policy, change the tests beside it first;
# muster loads no policy whose tests fail.
package muster.enroll

default allow := false

# A new or retired name belongs to the first node with a token that asks for it.
allow if {
	input.node.reason == "new"
	input.proof == "token"
}

# An unexpired entry of the allow-list covers the name. Without a token only an entry for such requests does.
allow if input.allow != null

# The node is on record, and the provisioner has verified that this key may have its name: by its certificate, which it
# may be renewing, by an earlier key of the node, by an operator's grant, or by a one-time token for exactly this name.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# Other nodes wait for an operator.
approval if not allow

reasons contains sprintf("neither a token nor the allow-list admits it (%s)", [input.node.reason]) if approval

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
