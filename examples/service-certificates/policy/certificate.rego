# Service certificates of the web fleet.
#
# A node may have names below its own, and those that data.json lists for it on the requested network. What a machine
# says about itself widens nothing: a template with facts only chooses among these names.
package muster.certificate

default allow := false

allow if count(deny) == 0

permitted contains name if {
	some name in input.csr.dns_names
	endswith(name, concat("", [".", input.identity]))
}

permitted contains name if some name in data.networks[input.certificate.network][input.identity]

deny contains sprintf("%s may not have the name %s on the network %q", [input.identity, name, input.certificate.network]) if {
	some name in array.concat(input.csr.dns_names, array.concat(input.csr.ip_addresses, input.csr.uris))
	not name in permitted
}

client if "client" in input.certificate.usages

deny contains "only certificates with the profile \"client\" are for clients" if {
	client
	input.certificate.profile != "client"
}

# Both nodes have the name of the site.
certificate := {
	"ttl": data.lifetime,
	"dns_names": input.csr.dns_names,
	"shared": data.shared,
	"server_auth": server,
	"client_auth": input.certificate.profile == "client",
}

default server := true

server := false if client
