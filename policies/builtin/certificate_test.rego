package muster.certificate_test

import data.muster.certificate

# A node on record that asks for a certificate for its own name.
own := {
	"identity": "web1.example.net",
	"csr": {
		"common_name": "",
		"dns_names": ["web1.example.net"],
		"ip_addresses": [],
		"uris": [],
		"emails": [],
	},
	"certificate": {"name": "https", "usages": ["server"], "source": "file"},
}

with_csr(names) := object.union(own, {"csr": names})

fine(request) if {
	certificate.allow with input as request
	count(certificate.deny) == 0 with input as request
	count(certificate.reasons) == 0 with input as request
}

test_own_names_are_allowed[what] if {
	some what, names in {
		"the identity": ["web1.example.net"],
		"below the identity": ["https.web1.example.net", "a.b.web1.example.net"],
	}
	fine(with_csr({"dns_names": names}))
	certificate.certificate.dns_names == names with input as with_csr({"dns_names": names})
}

test_other_names_wait_for_an_operator[what] if {
	some what, names in {
		"another name": {"dns_names": ["www.example.net"]},
		"own and another": {"dns_names": ["web1.example.net", "www.example.net"]},
		"the parent": {"dns_names": ["example.net"]},
		"an ending without a dot": {"dns_names": ["evilweb1.example.net"]},
		"upper case": {"dns_names": ["WEB1.example.net"]},
		"an IP address": {"ip_addresses": ["192.0.2.1"]},
	}
	certificate.approval with input as with_csr(names)
	count(certificate.deny) == 0 with input as with_csr(names)
}

test_what_no_node_has_is_denied[what] if {
	some what, names in {
		"a wildcard": {"dns_names": ["*.web1.example.net"]},
		"another wildcard": {"dns_names": ["*.example.net"]},
		"a URI": {"uris": ["https://web1.example.net/"]},
	}
	count(certificate.deny) == 1 with input as with_csr(names)
}

test_email_is_denied if {
	count(certificate.deny) == 1 with input as with_csr({"emails": ["root@web1.example.net"]})
}

test_names_of_the_data_file_are_allowed if {
	names := {"web1.example.net": ["www.example.net", "192.0.2.1"], "web2.example.net": ["shop.example.net"]}
	listed := with_csr({"dns_names": ["www.example.net"], "ip_addresses": ["192.0.2.1"]})
	fine(listed) with data.certificate_names as names
	certificate.certificate.shared == {"www.example.net", "192.0.2.1"} with input as listed
		with data.certificate_names as names
	certificate.approval with input as with_csr({"dns_names": ["shop.example.net"]})
		with data.certificate_names as names
}

test_client_usage_is_denied if {
	count(certificate.deny) == 1 with input as object.union(own, {"certificate": {"usages": ["server", "client"]}})
}
