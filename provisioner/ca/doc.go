// Package ca issues and verifies an installation's X.509 certificates (RFC 5280). It reads no file and keeps no
// record. Keys are [crypto.Signer]s, so that an HSM works too.
//
//	role         names                        extended key usage
//	node         DNS: identity, approved      clientAuth; serverAuth if approved
//	broker       DNS and IP as approved       clientAuth, serverAuth
//	provisioner  DNS and IP as approved       clientAuth; serverAuth if approved
//	operator     none                         clientAuth
//
// Each certificate also has the URI spiffe://<trust domain>/<role>/<name> and a serial number of 128 random bits.
// Only the key of a [CSR] goes into a certificate. The caller must approve a [Request]; this package checks only its
// form.
package ca
