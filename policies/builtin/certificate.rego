# The built-in rules about service certificates: those that a node has besides its own. They apply while no file of the
# policy has this package.
#
# docs/policies.md of the source lists the members of `input`. To change these rules, copy this file and its tests to the
# directory of the policy.
package muster.certificate

default allow := false

# A reason to deny overrides this.
allow if input.certificate

# What is issued. Nothing else of the certificate request is.
certificate := {
	"dns_names": input.csr.dns_names,
	"ip_addresses": input.csr.ip_addresses,
	"uris": input.csr.uris,
}

# Names of the node besides those below its identity: those that operators or the data file list for it.
listed contains input.identity

listed contains name if some name in input.certificate.allowed_names

listed contains name if some name in data.certificate_names[input.identity]

own(name) if name in listed

own(name) if {
	endswith(name, concat("", [".", input.identity]))
	not contains(name, "*")
}

deny contains sprintf("the DNS name %q is neither the node's, below it, nor listed for it", [name]) if {
	some name in input.csr.dns_names
	not own(name)
}

deny contains sprintf("the IP address %q is not listed for the node", [address]) if {
	some address in input.csr.ip_addresses
	not address in listed
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
