package simnode_test

import (
	"testing"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// TestCommands asks a simulated node at rest as a provisioner would, and as one
// that has no business to.
func TestCommands(t *testing.T) {
	t.Parallel()
	c := &simnode.Commands{Identity: "web1.example.net", Secret: "s", Verbs: []wire.Verb{wire.VerbReprovision}}
	send := func(m wire.Command) (*wire.CommandReply, *wire.Command) {
		t.Helper()
		b, err := wire.Encode(&m)
		if err != nil {
			t.Fatal(err)
		}
		answer, order, err := c.Answer(b)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.DecodeCommandReply(answer)
		if err != nil {
			t.Fatal(err)
		}
		return r, order
	}
	tell := func(id string, verb wire.Verb, secret wire.Secret) (wire.Command, *wire.CommandReply, *wire.Command) {
		t.Helper()
		m := wire.Command{ID: id, Identity: "web1.example.net", Verb: verb}
		asked, _ := send(m)
		m.Nonce = asked.Nonce
		m.Proof = wire.CommandProof(wire.CommandKey(secret, "web1.example.net"), &m)
		r, order := send(m)
		return m, r, order
	}
	refused := func(r *wire.CommandReply, order *wire.Command, code wire.Code) {
		t.Helper()
		if order != nil || r.Refusal == nil || r.Refusal.Code != code {
			t.Errorf("answer %+v, order %v; want it refused with %s", r, order, code)
		}
	}
	_, r, order := tell("1", wire.VerbReprovision, "guessed")
	refused(r, order, wire.CodeCommandProof)
	_, r, order = tell("2", wire.VerbShutdown, "s")
	refused(r, order, wire.CodeCommandImpossible)
	m, r, order := tell("3", wire.VerbReprovision, "s")
	if r.Accepted == nil || r.Accepted.Repeated || order == nil || order.Verb != wire.VerbReprovision {
		t.Errorf("answer %+v, order %v; want it taken", r, order)
	}
	r, order = send(m)
	refused(r, order, wire.CodeCommandStale)
	if _, r, order = tell("3", wire.VerbReprovision, "s"); r.Accepted == nil || !r.Accepted.Repeated || order != nil {
		t.Errorf("answer %+v, order %v; want it known, and nothing to do", r, order)
	}
}
