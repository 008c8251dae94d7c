// Package jwt signs, verifies and reads provisioning tokens: compact JWS (RFC 7515) with Choria's claims, see
// [Claims]. muster's own limits are in [Limits], inside the claim `extensions`, so that muster and Choria read each
// other's tokens.
//
// [Sign] and [Verifier] are for operators and provisioners. [Peek] is for nodes, which have no key to verify with.
//
// # Trust
//
// A [Verified] is authenticated, an [Unverified] is not; the compiler keeps them apart. A verified token does not
// prove the sender's identity: every machine of a fleet holds the same text, see [Verified.Admits].
//
// The algorithm follows from the signer's key and never from the token. Decoding is strict, so that no two readers
// disagree about a token.
package jwt
