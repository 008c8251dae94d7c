// Package provisioner is what enrollment is: which requests become
// certificates, in which order that is found out, what is remembered, and why
// the rest is refused.
//
// It knows no transport, no file and no database. Requests come in through
// package natsapi, the record is kept behind [Store], the certificate comes
// from package ca, the decision from package policies. What operators have ordered
// is in package orders, what must not be believed in package trust. [Provisioner.Enroll]
// says why no step can lose or double anything.
//
// # Trust
//
// A request is a claim. [Provisioner.Enroll] proves, in this order: that the
// identity has the form of one, that a trusted signer signed the token and
// meant this identity and site, that the sender holds the key of the
// certificate request, and that this key may have this identity. Only then is
// the policy asked, and what it sees of the node's facts stays a claim.
//
// [Provisioner.Renew] takes no token: there, the node's session and a signature
// by the key of a live certificate prove who asks.
package provisioner
