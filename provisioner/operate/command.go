package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

var (
	// ErrNodeAway means that no agent of the node is connected. Nothing was sent.
	ErrNodeAway = errors.New("the node is not connected")

	// ErrNodeSilent means that the node did not answer in time. It may have received the command. A repetition with the
	// same id is carried out once.
	ErrNodeSilent = errors.New("the node does not answer")

	// ErrNoCommandKey means that the node enrolled with a token without a secret: name the token that it has now.
	ErrNoCommandKey = errors.New("no command key on record")
)

// A CommandOrder is a command to a node.
type CommandOrder struct {
	// ID identifies a repeated order; empty: a new one.
	ID   string
	Verb wire.Verb

	// Token is the text of the node's token; empty: the key on record.
	Token wire.Secret

	// Secret is the shared secret of the token of a Choria server. It is stored nowhere.
	Secret wire.Secret

	Seen provisioner.Precondition
}

// An Obeyed is the result of a command.
type Obeyed struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated,omitempty"` // the node had received it already
}

// NodeRefusal is a node's refusal of a command as an error.
func NodeRefusal(node wire.Identity, r *wire.Refusal) *provisioner.Refusal {
	return &provisioner.Refusal{Code: r.Code, Err: fmt.Errorf("node %q: %s", node, events.Scrub(r.Message))}
}

// Command sends a command and returns once it is on the node's disk, from where the agent carries it out even after a
// crash.
//
// The error is [provisioner.ErrNoRecord], [trust.ErrState], [ErrNoCommandKey], [ErrNodeAway], [ErrNodeSilent], or a
// *[provisioner.Refusal] by the node.
func (n *Nodes) Command(ctx context.Context, id wire.Identity, o CommandOrder, c trust.Cause) (_ *Obeyed, err error) {
	defer about(&err, "%.80s %q", o.Verb, id)
	err = c.Check()
	if !slices.Contains(wire.Verbs, o.Verb) {
		err = errors.Join(err, fmt.Errorf("verb %.80q, want one of %q", string(o.Verb), wire.Verbs))
	}
	if err := wrong(err, checkOrderID(o.ID)); err != nil {
		return nil, err
	}
	o.ID = cmp.Or(o.ID, wire.NewID())
	record, key, err := n.commandKey(ctx, id, o)
	if err != nil {
		return nil, err
	}
	e := n.event(events.Commanded, c)
	var accepted *wire.CommandAccepted
	if record.Protocol == provisioner.ProtocolChoria {
		accepted, err = n.commandChoria(ctx, record, o, c)
	} else {
		accepted, err = n.command(ctx, wire.Command{ID: o.ID, Identity: string(id), Verb: o.Verb}, key)
	}
	if err != nil && !errors.Is(err, ErrNodeSilent) {
		return nil, err
	}
	// A silent node may have received the command, so this is an event too.
	e.Node, e.Verb, e.Command, e.Cause = string(id), o.Verb, o.ID, events.ErrorText(err)
	if accepted != nil {
		e.Repeated = accepted.Repeated
	}
	n.report(ctx, "node commanded", e, "node", id, "verb", string(o.Verb), "command", o.ID,
		"repeated", e.Repeated, "err", e.Cause)
	if err != nil {
		return nil, err
	}
	return &Obeyed{ID: o.ID, Repeated: accepted.Repeated}, nil
}

func (n *Nodes) commandKey(ctx context.Context, id wire.Identity, o CommandOrder) (*provisioner.Record, []byte, error) {
	record, at, err := n.store.Record(ctx, id)
	if err == nil {
		err = o.Seen.Check(record, at)
	}
	if err == nil {
		err = n.commandable(record, o)
	}
	if err != nil {
		return nil, nil, err
	}
	key := record.CommandKey
	if o.Token != "" {
		token, err := n.cfg.Signers.VerifyFrom(string(o.Token), nil)
		if err != nil {
			return nil, nil, fmt.Errorf("token: %w", wrong(err))
		}
		key = provisioner.CommandKey(token, id)
	}
	if len(key) == 0 {
		return nil, nil, ErrNoCommandKey
	}
	return record, key, nil
}

// commandable refuses to re-enroll a node whose token would not let it in again.
func (n *Nodes) commandable(r *provisioner.Record, o CommandOrder) error {
	switch {
	case r == nil:
		return provisioner.ErrNoRecord
	case r.State == provisioner.StateRevoked || r.State == provisioner.StateRetired:
		return fmt.Errorf("%w: it is %s", trust.ErrState, r.State)
	case n.provisioner.Revocations().Outstanding(r.Identity, r.AppliedRevocation()) != nil:
		return fmt.Errorf("%w: it is revoked", trust.ErrState)
	case r.Protocol == provisioner.ProtocolPuppet:
		return wrong(errors.New("a Puppet agent takes no commands: it fetches its configuration at each of its runs"))
	case o.Verb != wire.VerbReprovision || o.Token != "":
		return nil
	}
	if err := n.provisioner.TokenUnusable(r); err != nil {
		return fmt.Errorf("%w: its token %s %w: give it another token first, and name that with --token-file",
			trust.ErrState, r.Token, err)
	}
	return nil
}
