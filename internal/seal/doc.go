// Package seal encrypts enrollment on open networks. A node seals its token and requests to the provisioner's public
// key, which the token contains. Each reply is encrypted for its request. The package is safe for concurrent use.
//
// The formats are those of "Sealed mode" in docs/reference/protocol.md. Each connection is a session with a secret of
// its own, from which all keys derive.
//
// # Security
//
// Senders are not authenticated: every token contains the public key. There is no forward secrecy, and X25519 does not
// resist quantum computers.
//
// A request can be replayed. So the caller must check that the broker reports the request's connection under the
// session's name ([SessionName]). A token opens only with a proof over the connection's nonce.
//
// The first message of a session costs 40 to 90 µs to open: limit rates.
package seal
