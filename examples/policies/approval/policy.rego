# Certain roles wait for a person, others for an allow-list entry.
#
# Machines that hold keys, data or control over others are looked at one by
# one: an allow-list entry counts for them only if it names the machine itself. For
# the rest an entry for many names, such as web*.example.net, is enough.
package muster.enroll

default allow := false

# Roles, as in names: vault1.example.net is a "vault".
looked_at := {"bastion", "db", "vault"}

role := trim_right(split(input.identity, ".")[0], "0123456789-")

# Seen before, and the provisioner has checked that this key may speak for it.
allow if input.node.reason in {"replay", "continue", "continuity", "grant", "one_time_token", "renew"}

# Approved, by name.
allow if input.allow.pattern == input.identity

# Expected, with others like it.
allow if {
	input.allow != null
	not role in looked_at
}

approval if not allow

reasons contains sprintf("machines of role %q are approved one by one: add an allow-list entry for %q itself", [role, input.identity]) if {
	approval
	role in looked_at
}

reasons contains sprintf("no allow-list entry matches %q", [input.identity]) if {
	approval
	not role in looked_at
}

# Shorter for what is looked at, so that a lost machine is soon none.
certificate := {"ttl": "72h"} if role in looked_at

certificate := {"ttl": "720h"} if not role in looked_at
