package muster.certificate_test

import data.muster.certificate

request(identity, name, changes) := {
	"identity": identity,
	"csr": {"dns_names": [name], "ip_addresses": [], "uris": []},
	"certificate": object.union({"name": "web", "profile": "", "network": "internal", "usages": ["server"]}, changes),
}

test_name_of_the_network if {
	machine := request("web1.example.net", "web1.internal.example.net", {})
	certificate.allow with input as machine
	c := certificate.certificate with input as machine
	c.dns_names == ["web1.internal.example.net"]
	c.server_auth
	not c.client_auth
}

test_name_below_the_own if {
	certificate.allow with input as request("web1.example.net", "status.web1.example.net", {"network": ""})
}

test_name_of_the_site[identity] if {
	some identity in ["web1.example.net", "web2.example.net"]
	certificate.allow with input as request(identity, "www.example.net", {"network": "public"})
}

test_client if {
	machine := request("web1.example.net", "client.web1.example.net", {"profile": "client", "usages": ["client"]})
	certificate.allow with input as machine
	c := certificate.certificate with input as machine
	c.client_auth
	not c.server_auth
}

test_denied[what] if {
	some what, machine in {
		"name of another node": request("web2.example.net", "web1.internal.example.net", {}),
		"name of another network": request("web1.example.net", "web1.internal.example.net", {"network": "public"}),
		"no network": request("web1.example.net", "web1.internal.example.net", {"network": ""}),
		"name that ends alike": request("web1.example.net", "otherweb1.example.net", {}),
		"name of the site": request("db1.example.net", "www.example.net", {"network": "public"}),
		"client with another profile": request("web1.example.net", "a.web1.example.net", {"usages": ["client"]}),
	}
	not certificate.allow with input as machine
	count(certificate.deny) == 1 with input as machine
}
