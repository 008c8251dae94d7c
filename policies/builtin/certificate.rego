# The built-in rules about service certificates: those that a node has besides its own. They apply while no file of the
# policy has this package.
#
# docs/policies.md of the source lists the members of `input`. To change these rules, copy this file and its tests to the
# directory of the policy.
package muster.certificate

default allow := false

# A reason to deny overrides this, and `approval` does.
allow if input.certificate

# What is issued. Nothing else of the certificate request is. Several nodes may have the names of the data file.
certificate := {
	"dns_names": input.csr.dns_names,
	"ip_addresses": input.csr.ip_addresses,
	"uris": input.csr.uris,
	"shared": listed,
}

# Names that a data file of the policy lists for the node.
listed contains name if some name in data.certificate_names[input.identity]

own(name) if name == input.identity

own(name) if endswith(name, concat("", [".", input.identity]))

own(name) if name in listed

# An operator decides about other names.
approval if count(reasons) > 0

reasons contains sprintf("%s is neither the node's name, below it, nor listed for it", [name]) if {
	some name in array.concat(input.csr.dns_names, input.csr.ip_addresses)
	not own(name)
}

deny contains sprintf("%q has a wildcard", [name]) if {
	some name in input.csr.dns_names
	contains(name, "*")
}

deny contains sprintf("the URI %q is not listed for the node", [uri]) if {
	some uri in input.csr.uris
	not uri in listed
}

deny contains sprintf("the certificate request has the e-mail address %q", [address]) if {
	some address in input.csr.emails
}

deny contains sprintf("the usage %q is not for service certificates", [usage]) if {
	some usage in input.certificate.usages
	usage != "server"
}
