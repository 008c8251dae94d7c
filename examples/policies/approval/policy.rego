# Nodes with sensitive roles need an approval each, all other nodes an allow-list entry.
#
# Some nodes hold keys or data, or control other nodes. An operator approves each
# of them: only an allow-list entry with the node's exact name counts. For all
# other nodes, an entry with a pattern such as web*.example.net is enough.
package muster.enroll

default allow := false

# The role is the first part of the name: vault1.example.net is a "vault".
sensitive_roles := {"bastion", "db", "vault"}

role := trim_right(split(input.identity, ".")[0], "0123456789-")

# The provisioner has checked that this key may use the name.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# An entry has the exact name.
allow if input.allow.pattern == input.identity

# Any entry that matches is enough for other roles.
allow if {
	input.allow != null
	not role in sensitive_roles
}

approval if not allow

reasons contains sprintf("role %q needs an approval for each node: add an allow-list entry for exactly %q", [role, input.identity]) if {
	approval
	role in sensitive_roles
}

reasons contains sprintf("no allow-list entry matches %q", [input.identity]) if {
	approval
	not role in sensitive_roles
}

# Short for sensitive roles: the certificate of a stolen node soon expires.
certificate := {"ttl": "72h"} if role in sensitive_roles

certificate := {"ttl": "720h"} if not role in sensitive_roles
