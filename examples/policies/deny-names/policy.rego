# Refuses names that no node may have.
#
# In Choria's network, certificates with such names carry additional rights.
# The patterns are the defaults of Choria's provisioner. This policy checks the
# identity and every name in the certificate request.
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
