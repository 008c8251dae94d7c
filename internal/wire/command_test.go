package wire_test

import (
	"testing"

	"muster/internal/wire"
)

func TestCommandProofCoversCommandAndNode(t *testing.T) {
	t.Parallel()
	key := wire.CommandKey("toomanysecrets", "web1.example.net")
	c := wire.Command{ID: "a", Identity: "web1.example.net", Verb: wire.VerbRestart, Nonce: "n"}
	c.Proof = wire.CommandProof(key, &c)
	if !wire.CheckCommandProof(key, &c) {
		t.Fatal("the proof does not prove its own command")
	}
	for name, edit := range map[string]func(*wire.Command){
		"id":       func(c *wire.Command) { c.ID = "b" },
		"identity": func(c *wire.Command) { c.Identity = "web2.example.net" },
		"verb":     func(c *wire.Command) { c.Verb = wire.VerbShutdown },
		"nonce":    func(c *wire.Command) { c.Nonce = "m" },
		"no proof": func(c *wire.Command) { c.Proof = nil },
	} {
		changed := c
		if edit(&changed); wire.CheckCommandProof(key, &changed) {
			t.Errorf("%s: the proof is good for another command", name)
		}
	}
	for name, other := range map[string][]byte{
		"another node":   wire.CommandKey("toomanysecrets", "web2.example.net"),
		"another secret": wire.CommandKey("guessed", "web1.example.net"),
		"no secret":      wire.CommandKey("", "web1.example.net"),
	} {
		if wire.CheckCommandProof(other, &c) {
			t.Errorf("%s: its key proves the command", name)
		}
	}
}
