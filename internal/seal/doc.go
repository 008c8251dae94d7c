// Package seal carries enrollment over a network that anybody can read and
// write: sealed mode. A node seals its token and its requests to the
// provisioner's public key, which the token names, and gets each reply
// encrypted for that one request.
//
// The node's half is [PublicKey] and [ReplyOpener], the provisioner's is
// [Opener] and [ReplySealer]. All of it is a computation: the package opens no
// file and no connection, keeps no state, logs nothing, and everything in it
// is safe for concurrent use.
//
// # Formats
//
// A request is sealed by HPKE (RFC 9180) in base mode with DHKEM(X25519,
// HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305, one context for each
// message. The info is "muster enroll v1", "muster applied v1" or "muster
// connect v1", so what was sealed for one purpose opens for no other. What is
// sealed is the plain message as [wire.Encode] makes it, so whatever comes
// after opening is the same in both modes. It travels in a [wire.Envelope] as
// key id, encapsulated key and ciphertext.
//
// A reply is encrypted as in RFC 9458 section 4.4. The HPKE context exports 32
// bytes under "muster reply v1". From those, the encapsulated key and 32 fresh
// random bytes, HKDF-SHA256 makes a key ("key") and a nonce ("nonce") for this
// one reply, which is the random bytes followed by AES-256-GCM over the
// message, with SHA-256 over encapsulated key and ciphertext of the request as
// the additional data. The key is new for each reply because a provisioner may
// open one request many times: whoever can deliver it can deliver it again.
// The cipher is AES-GCM because the standard library has ChaCha20-Poly1305
// within crypto/hpke only. The reply travels in an envelope that has a
// ciphertext and nothing else.
//
// Before it is encrypted, a plaintext is put behind its length, four bytes big
// endian, and filled with zeros to a multiple of 256 bytes. A listener learns
// the length of a message to within 256 bytes, who talks when, and to which
// key; not more.
//
// # What it protects
//
// Without the private key nobody reads a sealed message, or alters it unseen,
// or makes a reply that opens: a reply that opens came from a holder of the
// seal key, for exactly this request.
//
// # What it does not protect
//
// The sender is not authenticated: anybody who has the public key, and it is in
// every token, can seal anything. What comes out of [Opener.Open] is a
// stranger's, exactly as in plain mode.
//
// Replay is for the caller to stop: the same bytes open as often as they come.
// A sealed token names an nkey whose signature over the broker's nonce the
// caller must check, and a sealed request repeats that nkey, which must be the
// one of the connection that the request came on.
//
// There is no forward secrecy towards the holder of the seal key: who gets it
// later reads what was recorded earlier. Nor does X25519 withstand a quantum
// computer.
//
// Opening costs the provisioner a scalar multiplication for anybody's bytes, 46
// to 90 µs on the machines measured. Sizes and key ids are checked before;
// rates are for the caller to bound.
package seal
