package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
)

// A Verb is an action that a command asks of a node.
type Verb string

// A node acts once per command id, even if the command arrives several times.
const (
	// VerbReprovision returns the node to provisioning mode; it keeps its key.
	VerbReprovision Verb = "reprovision"

	// VerbReconfigure makes the node fetch its configuration, and a certificate only if one is due.
	VerbReconfigure Verb = "reconfigure"

	// VerbRestart restarts the agent.
	VerbRestart Verb = "restart"

	// VerbShutdown stops the agent until it is started by hand.
	VerbShutdown Verb = "shutdown"
)

// Verbs lists all verbs.
var Verbs = []Verb{VerbReprovision, VerbReconfigure, VerbRestart, VerbShutdown}

// MaxCommandBytes bounds a command and its reply.
const MaxCommandBytes = 4 << 10

// A Command is sent twice: first without a nonce, then with the nonce of the node's reply and a proof. So a recorded
// command is useless.
type Command struct {
	ID       string `json:"id"` // the same each time that the command is sent; see [NewID]
	Identity string `json:"identity"`
	Verb     Verb   `json:"verb"`
	Nonce    string `json:"nonce,omitempty"` // from the node; empty requests one
	Proof    []byte `json:"proof,omitempty"` // [CommandProof]; nil without nonce
}

// A CommandReply has exactly one of Nonce, Accepted and Refusal.
type CommandReply struct {
	ID       string           `json:"id"`              // of the command; empty if it was unreadable
	Nonce    string           `json:"nonce,omitempty"` // valid for one proof on this connection, for a short time
	Accepted *CommandAccepted `json:"accepted,omitempty"`
	Refusal  *Refusal         `json:"refusal,omitempty"`
}

// CommandAccepted means that the command will be executed even after a crash.
type CommandAccepted struct {
	Repeated bool `json:"repeated,omitempty"` // it was accepted before and is not executed again
}

// CommandKey derives a node's key from the shared secret in its token (claim cht).
func CommandKey(secret Secret, identity Identity) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("muster command key v1\n" + string(identity) + "\n"))
	return h.Sum(nil)
}

// CommandProof is an HMAC over the command and its nonce.
func CommandProof(key []byte, c *Command) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("muster command v1\n" + c.ID + "\n" + c.Identity + "\n" + string(c.Verb) + "\n" + c.Nonce + "\n"))
	return h.Sum(nil)
}

// CheckCommandProof reports whether c's proof is valid, in constant time.
func CheckCommandProof(key []byte, c *Command) bool {
	return hmac.Equal(c.Proof, CommandProof(key, c))
}

// DecodeCommand checks the form, not the proof. The error wraps [ErrMessage], [ErrTooLarge], [ErrVersion] or
// [ErrSealed].
func DecodeCommand(b []byte) (*Command, error) {
	return decodePlain[Command]("command", b, MaxCommandBytes)
}

func (c *Command) check() error {
	_, err := ParseIdentity(c.Identity)
	switch {
	case err != nil:
		return fmt.Errorf("%w: identity %.80q", ErrMessage, c.Identity)
	case !slices.Contains(Verbs, c.Verb):
		return fmt.Errorf("%w: verb %.80q, want one of %q", ErrMessage, c.Verb, Verbs)
	case c.Nonce == "" && c.Proof != nil, c.Nonce != "" && (!validID(c.Nonce) || len(c.Proof) != sha256.Size):
		return fmt.Errorf("%w: nonce of %d characters with a proof of %d bytes, want neither, or 1 to 64 characters "+
			"with %d bytes", ErrMessage, len(c.Nonce), len(c.Proof), sha256.Size)
	}
	return checkID("id", c.ID)
}

// DecodeCommandReply returns the same errors as [DecodeCommand].
func DecodeCommandReply(b []byte) (*CommandReply, error) {
	return decodePlain[CommandReply]("reply to a command", b, MaxCommandBytes)
}

func (r *CommandReply) check() error {
	n := count(r.Nonce != "", r.Accepted != nil, r.Refusal != nil)
	if n != 1 || r.Nonce != "" && !validID(r.Nonce) || (r.ID != "" || r.Refusal == nil) && !validID(r.ID) {
		return fmt.Errorf("%w: id %.80q with %d of nonce, accepted and refusal, want one", ErrMessage, r.ID, n)
	}
	return nil
}
