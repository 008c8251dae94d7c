// Package ca is the installation's X.509 authority: it turns approved facts
// into certificates that follow RFC 5280.
//
// The provisioner uses it to issue node certificates, `muster provisioner
// init` to make an authority and the certificates of brokers, provisioners and
// operators. The package reads no file, opens no connection and keeps no
// record of what it issued; keys come in as [crypto.Signer], so one in an HSM
// does as well as one in memory.
//
// # Profiles
//
// What a certificate says follows from the role of its holder and from nothing
// else:
//
//	role         names                        extended key usage
//	node         DNS: identity, approved      clientAuth; serverAuth if approved
//	broker       DNS and IP as approved       clientAuth, serverAuth
//	provisioner  none                         clientAuth
//	operator     none                         clientAuth
//
// Each also has the URI spiffe://<trust domain>/<role>/<name>, digitalSignature
// as its only key usage, and cA false. Serial numbers are 128 random bits.
//
// # Trust
//
// A certificate request is input, not authority: [ParseCSR] proves that its
// sender holds the key, and that key is the only part of it that [Authority.Issue]
// takes. The other fields of a [CSR] are claims for the policy to look at. A
// [Request], on the other hand, is what has been approved; it is checked for
// form only.
package ca
