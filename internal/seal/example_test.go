package seal_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"

	"muster/internal/seal"
	"muster/internal/wire"
)

// A node and a provisioner exchange messages that cannot be read in between.
func Example() {
	key, _ := ecdh.X25519().GenerateKey(rand.Reader)
	private, _ := seal.NewPrivateKey(key)
	opener, _ := seal.NewOpener(private)

	// The node has the public key from its token.
	public, _ := seal.ParsePublicKey(private.Public().String())
	session, _ := seal.NewSession(public, "eyJhbGciOiJFZERTQSJ9...")
	request, replies, _ := session.Encode(&wire.EnrollRequest{ID: "r1", Identity: "web1.example.net", Boot: "b1"})

	// The provisioner.
	envelope, _ := wire.Open(request, wire.MaxMessageBytes)
	message, sealer, _ := opener.Open(seal.PurposeEnroll, envelope)
	r, _ := wire.DecodeEnroll(message)
	answer, _ := sealer.EncodeReply(&wire.Reply{ID: r.ID, Refusal: &wire.Refusal{Code: wire.CodeBusy}})

	// The node again.
	reply, err := replies.DecodeReply(answer)
	fmt.Println(r.Identity, reply.ID, reply.Refusal.Code, err)
	// Output: web1.example.net r1 busy <nil>
}
