// Package seal carries enrollment over a network that anybody can read and
// write: sealed mode. A node seals its token and its requests to the
// provisioner's public key, which the token names, and gets each reply
// encrypted for that one request.
//
// The node's half is [Session] and [ReplyOpener], the provisioner's is
// [Opener] and [ReplySealer]. All of it is a computation: the package opens no
// file and no connection, keeps nothing that could be missed, logs nothing, and
// everything in it is safe for concurrent use.
//
// # Formats
//
// A connection is a session. Its two sides agree on a secret once, by HPKE (RFC
// 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and no cipher of
// its own (export-only), under the info "muster session v1". The context exports
// 32 bytes under "muster session v1", from which HKDF-Expand makes all else; what
// goes into it is a label and behind that what is named here.
//
// Each message has 32 fresh random bytes, the salt. The label of its purpose and
// the salt give 76 bytes: a key, a nonce of 12 bytes, and a secret for its replies.
// The labels are "muster connect v1" for the token, "muster enroll v1" and "muster
// applied v1", so what was sealed for one purpose opens for no other. The message is
// the salt followed by AES-256-GCM. What is sealed is the plain message as
// [wire.Encode] makes it, so whatever comes after opening is the same in both
// modes. It travels in a [wire.Envelope] as key id, encapsulated key and
// ciphertext. The encapsulated key names the session, so that each message can be
// opened by itself: by a provisioner that has seen nothing else of the session as
// well as by one that remembers it, and so saves the agreement (see [cache]).
//
// A reply has a salt of its own, since a provisioner may open one request many
// times: whoever can deliver it can deliver it again. "muster reply v1" and that
// salt, expanded from the secret of its request, give key and nonce of AES-256-GCM;
// the additional data is the request's tag. The reply travels in an envelope that
// has a ciphertext and nothing else.
//
// The token is presented with the session's name, which is its encapsulated key,
// and with a proof over the nonce that the broker has sent: "muster proof v1" and
// the nonce, expanded from the session's secret to 32 bytes.
//
// The cipher is AES-GCM because the standard library has ChaCha20-Poly1305
// within crypto/hpke only, where a context encrypts in one order.
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
// Replay is for the caller to stop: the same bytes open as often as they come. A
// token opens only with the proof that the connection's own nonce was known when
// it was made. A request is of the connection whose name the broker reports for it
// if that is the name of its session ([SessionName]); the caller must compare.
//
// There is no forward secrecy towards the holder of the seal key: who gets it
// later reads what was recorded earlier. Nor does X25519 withstand a quantum
// computer.
//
// Opening costs the provisioner a scalar multiplication for anybody's bytes of a
// session that it does not remember, 40 to 90 µs on the machines measured. Sizes and
// key ids are checked before; rates are for the caller to bound.
package seal
