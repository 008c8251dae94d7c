# Names that no machine may have.
#
# In Choria's network, certificates for names like these carry rights of their
# own, so its provisioner refuses them; the patterns are its defaults. They hold
# for the identity and for every name that the certificate request asks for.
package muster.enroll

denied_names := {
	`\.privileged\.mcollective$`,
	`\.privileged\.choria$`,
	`\.mcollective$`,
	`\.choria$`,
}

requested_names contains input.identity

requested_names contains input.csr.common_name

requested_names contains name if some name in input.csr.dns_names

deny contains sprintf("the name %q is not for machines (%s)", [name, pattern]) if {
	some name in requested_names
	some pattern in denied_names
	regex.match(pattern, lower(name))
}
