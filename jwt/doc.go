// Package jwt signs, verifies and reads provisioning tokens.
//
// A provisioning token is one compact JWS (RFC 7515) over the claims of RFC
// 7519 and those of Choria's provisioning tokens, see [Claims]. It is written
// for a whole fleet, lies on every machine of it, and says where the brokers
// are and which signer vouches for the machine. What only muster knows is in [Limits],
// inside the claim `extensions`, so that either tool reads the other's tokens.
//
// The package has two halves. [Sign] and [Verifier] are for operators and
// provisioners, which hold keys. [Peek] is for nodes, which hold none: to them
// a token is a hint where to go, and it proves nothing.
//
// # Trust
//
// A [Verified] has been authenticated. An [Unverified] has not: it is what a
// text says. They are different types so that the compiler keeps one from
// standing in for the other. Being verified means that a trusted [Signer]
// signed the token, not that the sender is the node it claims to be: every
// machine of a fleet holds the same text, see [Verified.Admits].
//
// # What is refused
//
// The algorithm follows from the signer's key and from nothing in the token:
// RS256, RS384 or RS512 for RSA keys of 2048 bits or more, ES256 for P-256,
// EdDSA for Ed25519. So a token cannot ask for none or for HMAC with a public
// key as the secret. Header members that bring keys of their own or change
// the meaning of the signature are refused, as RFC 8725 advises. Everything
// is decoded strictly, so that no two readers can disagree about what a token
// says: base64url without padding, line breaks or stray bits, JSON without
// duplicate members or trailing data, known names in exactly their spelling,
// and at most [MaxTokenBytes] of it, checked before anything is parsed.
//
// The package keeps no state outside its values and logs nothing. It is the
// only one that imports golang-jwt.
package jwt
