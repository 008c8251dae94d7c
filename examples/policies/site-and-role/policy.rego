# Configures nodes by site and role, and sets the lifetime of their certificates by role.
#
# The token names the site: sign one token per site. The role is a fact, and
# facts are only claims, so site and role must match the node's name:
# web1.ams.example.net is a "web" at "ams".
package muster.enroll

default allow := false

# Known roles.
roles := {
	"web": {"ttl": "720h", "collectives": "mcollective,web"},
	"db": {"ttl": "240h", "collectives": "mcollective,db"},
	"bastion": {"ttl": "24h", "collectives": "mcollective"},
}

# Known sites, with the brokers of each.
sites := {
	"ams": "broker1.ams.example.net:4222,broker2.ams.example.net:4222",
	"lon": "broker1.lon.example.net:4222,broker2.lon.example.net:4222",
}

labels := split(input.identity, ".")

named_role := trim_right(labels[0], "0123456789")

named_site := labels[1]

role := input.facts.role

site := input.token.site

allow if {
	roles[role]
	sites[site]
}

deny contains sprintf("the facts say role %v, the name says %q", [role, named_role]) if role != named_role

deny contains sprintf("the token is for site %q, the name says %q", [site, named_site]) if site != named_site

deny contains "the facts do not say which role the machine has" if not role

deny contains sprintf("there is no role %q", [role]) if {
	is_string(role)
	not roles[role]
}

deny contains "the token is for no known site" if not sites[site]

certificate := {"ttl": roles[role].ttl}

configuration := {
	"identity": input.identity,
	"brokers": sites[site],
	"collectives": roles[role].collectives,
	"registerinterval": "300",
	"plugin.choria.server.provision": "false",
}
