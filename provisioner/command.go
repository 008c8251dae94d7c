package provisioner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Errors of commands to nodes.
var (
	// ErrNodeAway means that nobody takes commands for the node: it is off, or
	// not connected to the fleet, or still being provisioned. Nothing was sent.
	ErrNodeAway = errors.New("the node is not connected")

	// ErrNodeSilent means that the node did not answer in time. It may have
	// taken the command: sent again under the same id it is done once.
	ErrNodeSilent = errors.New("the node does not answer")

	// ErrNoCommandKey means that nothing is on record by which a command could be
	// proven to the node: it enrolled before there were commands, or with a
	// token without a secret. Say what token it has.
	ErrNoCommandKey = errors.New("no command key on record")
)

// An Order is a command to a node.
type Order struct {
	// ID is the command's: who repeats it keeps it. Empty makes a new one.
	ID   string
	Verb wire.Verb

	// Token is the text of the token that the node has, in place of the key on
	// record. Empty uses that.
	Token wire.Secret

	Seen Seen
}

// An Obeyed says what has become of an order.
type Obeyed struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated,omitempty"` // the node knew it already
}

// CommandNode has a node do something, and returns once the order is on the
// node's disk: it is done then, whatever happens to the agent. That it is done
// shows in the node's history. Asking again with the same id is harmless.
//
// The error is [ErrNoRecord], [ErrState], [ErrNoCommandKey], [ErrNodeAway],
// [ErrNodeSilent], or the node's refusal as a *[Refusal].
func (p *Provisioner) CommandNode(ctx context.Context, id wire.Identity, o Order, c Cause) (*Obeyed, error) {
	err := c.Check()
	if !slices.Contains(wire.Verbs, o.Verb) {
		err = errors.Join(err, fmt.Errorf("verb %.80q, want one of %q", string(o.Verb), wire.Verbs))
	}
	if err := wrong(err, checkOrderID(o.ID)); err != nil {
		return nil, fmt.Errorf("command %q: %w", id, err)
	}
	record, at, err := p.cfg.Store.Record(ctx, id)
	if err == nil {
		err = o.Seen.Check(record, at)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", o.Verb, id, err)
	}
	if err := p.commandable(record, o); err != nil {
		return nil, fmt.Errorf("%s %q: %w", o.Verb, id, err)
	}
	key := record.CommandKey
	if o.Token != "" {
		token, err := p.cfg.Tokens.VerifyFrom(string(o.Token), nil)
		if err != nil {
			return nil, fmt.Errorf("%s %q: token: %w", o.Verb, id, wrong(err))
		}
		key = commandKey(token.Token, id)
	}
	if len(key) == 0 {
		return nil, fmt.Errorf("%s %q: %w", o.Verb, id, ErrNoCommandKey)
	}
	if o.ID == "" {
		o.ID = wire.NewID()
	}
	ordered := p.moment() // before the node may do it, so that what it does then is later
	accepted, err := p.cfg.Command(ctx, wire.Command{ID: o.ID, Identity: string(id), Verb: o.Verb}, key)
	if err != nil && !errors.Is(err, ErrNodeSilent) {
		return nil, fmt.Errorf("%s %q: %w", o.Verb, id, err)
	}
	// Of an order that may have been taken there is an event, too.
	e := events.Event{Type: events.Commanded, Time: ordered, Node: string(id), Verb: o.Verb, Command: o.ID, By: c.By, Why: c.Why, Cause: events.ErrorText(err)}
	if accepted != nil {
		e.Repeated = accepted.Repeated
	}
	p.cfg.Emit(e)
	p.cfg.Log.InfoContext(ctx, "node commanded", "node", id, "verb", string(o.Verb), "command", o.ID, "by", c.By, "why", c.Why, "repeated", e.Repeated, "err", e.Cause)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", o.Verb, id, err)
	}
	return &Obeyed{ID: o.ID, Repeated: accepted.Repeated}, nil
}

// commandable says why a node is not to get a command. A node is not sent to
// enroll with a token that would not let it in again.
func (p *Provisioner) commandable(r *Record, o Order) error {
	switch r.state() {
	case StateNone:
		return ErrNoRecord
	case StateRevoked, StateRetired:
		return fmt.Errorf("%w: it is %s", ErrState, r.State)
	}
	if p.revocations.outstanding(r.Identity, r) != nil {
		return fmt.Errorf("%w: it is revoked", ErrState)
	}
	if o.Verb != wire.VerbReprovision || o.Token != "" {
		return nil
	}
	if by := p.revocations.Token(r.Token); by != nil {
		return fmt.Errorf("%w: its token %s is revoked: give it another one first, and name that with --node-token", ErrState, r.Token)
	}
	if p.cfg.Signers != nil && p.cfg.Signers.removed(r.Signer) {
		return fmt.Errorf("%w: its token %s is of signer %s, who was removed: give it another one first, and name that with --node-token", ErrState, r.Token, r.Signer)
	}
	token, err := r.recall()
	if err != nil {
		return err
	}
	if end := token.Expiry(); !end.IsZero() && !p.now().Before(end) {
		return fmt.Errorf("%w: its token %s expired at %s: give it another one first, and name that with --node-token", ErrState, r.Token, end)
	}
	return nil
}

// commandKey is what proves commands to the node, nil if its token has no secret.
func commandKey(secret wire.Secret, id wire.Identity) []byte {
	if secret == "" {
		return nil
	}
	return wire.CommandKey(secret, id)
}

// otherSecret reports whether the node has come with a token of another secret
// than the one that its record knows how to prove.
func (a *attempt) otherSecret() bool {
	return !a.renewal && !bytes.Equal(commandKey(a.token.Token, a.identity), a.record.CommandKey)
}

// NodeRefusal is a node's refusal of a command as an error.
func NodeRefusal(node wire.Identity, r *wire.Refusal) *Refusal {
	return refuse(string(node), r.Code, errors.New(events.Scrub(r.Message)))
}
