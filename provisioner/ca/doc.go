// Package ca issues and verifies an installation's X.509 certificates, following RFC 5280. It reads no file, opens
// no connection and keeps no record. Keys are [crypto.Signer]s, so that an HSM works too.
//
// A certificate's content follows from its holder's role:
//
//	role         names                        extended key usage
//	node         DNS: identity, approved      clientAuth; serverAuth if approved
//	broker       DNS and IP as approved       clientAuth, serverAuth
//	provisioner  none                         clientAuth
//	operator     none                         clientAuth
//
// Each also has the URI spiffe://<trust domain>/<role>/<name>, key usage digitalSignature, cA false, and a serial
// number of 128 random bits.
//
// [ParseCSR] proves that the sender holds the key, and only the key goes into a certificate. All other fields of a
// [CSR] are claims for the policy. A [Request] is approved and checked for form only.
package ca
