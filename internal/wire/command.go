package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
)

// A Verb is what a provisioner has a node do.
type Verb string

// The verbs. Each is done once for a command's id, however often it is sent.
const (
	// VerbReprovision sends the node back to provisioning mode. It keeps its key.
	VerbReprovision Verb = "reprovision"

	// VerbReconfigure has the node ask for its configuration, decided anew,
	// and confirm it. It gets no new certificate but where one is due.
	VerbReconfigure Verb = "reconfigure"

	// VerbRestart starts the agent anew.
	VerbRestart Verb = "restart"

	// VerbShutdown ends the agent until somebody starts it.
	VerbShutdown Verb = "shutdown"
)

// Verbs are all verbs.
var Verbs = []Verb{VerbReprovision, VerbReconfigure, VerbRestart, VerbShutdown}

// MaxCommandBytes bounds a command and the answer to one; chosen, both have a
// few short members and at most one refusal.
const MaxCommandBytes = 4 << 10

// A Command has a node do something. It is sent to [CommandSubject] twice:
// without nonce and proof, which the node answers with a nonce of its own, and
// with both. So a command that somebody recorded is worth nothing later, and no
// clock is trusted for that.
type Command struct {
	ID       string `json:"id"`       // of the command, the same each time that it is sent; see [NewID]
	Identity string `json:"identity"` // the node's
	Verb     Verb   `json:"verb"`
	Nonce    string `json:"nonce,omitempty"` // as the node gave it; empty asks for one
	Proof    []byte `json:"proof,omitempty"` // [CommandProof]; nil with an empty nonce
}

// A CommandReply answers a command. Exactly one of Nonce, Accepted and Refusal
// is set.
type CommandReply struct {
	ID       string   `json:"id"`              // of the command; empty if that could not be read
	Nonce    string   `json:"nonce,omitempty"` // good for one proof, soon, on this connection
	Accepted *Obeyed  `json:"accepted,omitempty"`
	Refusal  *Refusal `json:"refusal,omitempty"`
}

// Obeyed says that a command is on the node's disk and will be done, whatever
// happens to the agent.
type Obeyed struct {
	Repeated bool `json:"repeated,omitempty"` // it was already: nothing is done again
}

// CommandKey derives the key of commands to one node from the shared secret of
// its token (cht). Who has the key knows neither the secret, but for guessing
// it, nor the key of another node.
func CommandKey(secret Secret, identity Identity) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("muster command key v1\n" + string(identity) + "\n"))
	return h.Sum(nil)
}

// CommandProof proves the knowledge of a node's key for this command and this
// nonce: what [CheckCommandProof] checks.
func CommandProof(key []byte, c *Command) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("muster command v1\n" + c.ID + "\n" + c.Identity + "\n" + string(c.Verb) + "\n" + c.Nonce + "\n"))
	return h.Sum(nil)
}

// CheckCommandProof reports whether c carries the proof for key, in constant
// time.
func CheckCommandProof(key []byte, c *Command) bool {
	return hmac.Equal(c.Proof, CommandProof(key, c))
}

// DecodeCommand decodes one command of at most [MaxCommandBytes]. What its
// proof is worth is the node's to decide. The error wraps [ErrMessage],
// [ErrTooLarge], [ErrVersion] or [ErrSealed].
func DecodeCommand(b []byte) (*Command, error) {
	c, err := openPlain[Command](b, MaxCommandBytes)
	if err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	id, err := ParseIdentity(c.Identity)
	switch {
	case !validID(c.ID):
		return nil, fmt.Errorf("command: %w: id %.80q, want 1 to 64 base64url characters", ErrMessage, c.ID)
	case err != nil || string(id) != c.Identity:
		return nil, fmt.Errorf("command: %w: identity %.80q", ErrMessage, c.Identity)
	case !slices.Contains(Verbs, c.Verb):
		return nil, fmt.Errorf("command: %w: verb %.80q, want one of %q", ErrMessage, c.Verb, Verbs)
	case c.Nonce == "" && c.Proof != nil, c.Nonce != "" && (!validID(c.Nonce) || len(c.Proof) != sha256.Size):
		return nil, fmt.Errorf("command: %w: nonce of %d characters with a proof of %d bytes, want none, or 1 to 64 with %d",
			ErrMessage, len(c.Nonce), len(c.Proof), sha256.Size)
	}
	return c, nil
}

// DecodeCommandReply decodes what a node answers, at most [MaxCommandBytes].
// The error wraps [ErrMessage], [ErrTooLarge], [ErrVersion] or [ErrSealed].
func DecodeCommandReply(b []byte) (*CommandReply, error) {
	r, err := openPlain[CommandReply](b, MaxCommandBytes)
	if err != nil {
		return nil, fmt.Errorf("answer to a command: %w", err)
	}
	n := count(r.Nonce != "", r.Accepted != nil, r.Refusal != nil)
	if n != 1 || r.Nonce != "" && !validID(r.Nonce) || (r.ID != "" || r.Refusal == nil) && !validID(r.ID) {
		return nil, fmt.Errorf("answer to a command: %w: id %.80q with %d of nonce, accepted and refusal, want one", ErrMessage, r.ID, n)
	}
	return r, nil
}
