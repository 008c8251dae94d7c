// Package seal encrypts enrollment on open networks. A node seals its token and requests to the provisioner's
// public key, which the token names. Each reply is encrypted for its request. The package is safe for concurrent
// use.
//
// # Formats
//
// A connection is a session. Both sides agree on a secret by HPKE (RFC 9180) in base mode with DHKEM(X25519,
// HKDF-SHA256), HKDF-SHA256, export-only, and info "muster session v1". The context exports 32 bytes under "muster
// session v1". HKDF-Expand derives everything else; its info is a label followed by the values named here.
//
// A message has a salt of 32 random bytes. Its label and the salt give 76 bytes: a key, a nonce of 12 bytes, and a
// secret for replies. Labels are "muster connect v1" for the token, "muster enroll v1" and "muster applied v1". The
// message is the salt followed by AES-256-GCM over the plain message of [wire.Encode]. It travels in a
// [wire.Envelope] as key id, encapsulated key and ciphertext.
//
// A reply has its own salt, since a request may be opened many times. "muster reply v1" and the salt, expanded from
// the request's reply secret, give key and nonce of AES-256-GCM. The additional data is the request's tag. Its
// envelope has only a ciphertext.
//
// The token comes with the session's name, its encapsulated key, and a proof: "muster proof v1" and the broker's
// nonce, expanded from the session's secret to 32 bytes.
//
// A plaintext is preceded by its length, four bytes big endian, and padded with zeros to a multiple of 256 bytes.
//
// # Security
//
// Without the private key, sealed messages cannot be read, altered or answered. Senders are not authenticated:
// every token contains the public key. There is no forward secrecy, and X25519 does not resist quantum computers.
//
// A request can be replayed: the caller must check that the broker reports its connection under the session's name
// ([SessionName]). A token opens only with a proof over the connection's nonce.
//
// Opening costs 40 to 90 µs per unknown session; the caller limits rates.
package seal
