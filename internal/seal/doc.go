// Package seal encrypts enrollment on open networks. A node seals its token and requests to the provisioner's public
// key, which the token contains. Each reply is encrypted for its request. The package is safe for concurrent use.
//
// # Formats
//
// Each connection is a session. Node and provisioner agree on a secret by HPKE (RFC 9180) in base mode with
// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, export-only, and info "muster session v1". The HPKE context exports the
// secret, 32 bytes, under "muster session v1". HKDF-Expand derives all other secrets; its info is a label followed
// by the values named here.
//
// A message has a salt of 32 random bytes. Its label and salt give 76 bytes: a key, a nonce of 12 bytes, and a
// secret for replies. Labels are "muster connect v1" for the token, "muster enroll v1" and "muster applied v1". The
// ciphertext is the salt, then the token or the message of [wire.Encode] under AES-256-GCM. A [wire.Envelope]
// carries key id, encapsulated key and ciphertext.
//
// A reply has its own salt, because a request may be opened many times. The request's secret for replies, "muster
// reply v1" and the salt give key and nonce of AES-256-GCM. The additional data is the request's tag. The reply's
// envelope has only a ciphertext.
//
// With the token, a node sends the session's name, which is the encapsulated key, and a proof of 32 bytes: from the
// session's secret, "muster proof v1" and the broker's nonce.
//
// A plaintext is preceded by its length, four bytes big endian, and padded with zeros to a multiple of 256 bytes.
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
