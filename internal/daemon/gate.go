package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/events"
)

// A gate decides who may connect to the brokers. Nothing is admitted before the store is open.
type gate struct {
	*base
	budget   *provisioner.Budget // shared with every provisioner
	activity *activity
	reports  *reports
}

// verifyToken lets the broker check tokens of connections. Nobody's is good
// before it is known which signers and tokens are not any more.
//
// A token that is to be sealed is refused in plain: the network has seen it
// then, and a node that was brought to show it must not go on as if nothing
// were. Nodes of ours never do.
func (g *gate) verifyToken(p broker.Presented) (expires time.Time, err error) {
	operator := g.live.provisioner.Load()
	if operator == nil {
		return time.Time{}, &broker.Denied{Code: wire.CodeRevocationsUnknown, Err: errNotOpen}
	}
	text, err := g.openToken(p)
	if err != nil {
		return time.Time{}, err
	}
	v, err := operator.Gate.AdmitToken(string(text), p.Address)
	if err == nil && seal.IsSealedToken(string(p.Token)) {
		g.budget.Refund(p.Address)
	}
	if err != nil {
		refused := denied(err)
		if behind := g.live.clock.Load().Check(); behind != nil && refused.Code == wire.CodeTokenNotYetValid {
			refused = &broker.Denied{Code: wire.CodeClockBehind, Err: fmt.Errorf("%w; %w", behind, refused.Err)} // it is ours that is wrong
		}
		return time.Time{}, refused
	}
	if v.Limits.Seal != "" && !seal.IsSealedToken(string(p.Token)) {
		return time.Time{}, &broker.Denied{Code: wire.CodeSealedInvalid,
			Err: fmt.Errorf("token %s is to be sealed, and came in plain: whoever listens has it now; revoke it and sign another if that may be somebody", v.ID)}
	}
	return v.Expiry(), nil
}

// openToken returns the token that a connection presents, out of its seal if it
// is sealed. It is of this connection then: whoever sealed it has proven to be there
// over the broker's nonce, so that nobody can present what they recorded. Opening is charged like the check of a signature,
// and the caller gives that back if the token is good: anybody can seal garbage.
func (g *gate) openToken(p broker.Presented) (wire.Secret, error) {
	if !seal.IsSealedToken(string(p.Token)) {
		return p.Token, nil
	}
	if g.parts.opener == nil {
		return "", &broker.Denied{Code: wire.CodeSealedUnsupported, Err: errors.New("sealed token, and the provisioner has no seal.keys")}
	}
	if !g.budget.Charge(p.Address) {
		return "", &broker.Denied{Code: wire.CodeSourceLimited, Err: errors.New("too many tokens of this source were of no use")}
	}
	text, err := g.parts.opener.OpenToken(seal.Presented{Token: string(p.Token), Name: p.Nkey, Signature: p.Signature, Nonce: p.Nonce})
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		err = fmt.Errorf("%w, seal.keys has %s: sign tokens with the seal.pub of one of these, or put the former key back", err, g.sealKeyIDs())
	case errors.Is(err, seal.ErrProof):
		err = fmt.Errorf("%w: it was recorded and sent again", err)
	}
	if err != nil {
		return "", &broker.Denied{Code: wire.CodeSealedInvalid, Err: err}
	}
	return text, nil
}

// sealKeyIDs names the keys that we hold, for people.
func (g *gate) sealKeyIDs() string {
	var ids []string
	for _, k := range g.parts.sealKeys {
		ids = append(ids, k.Public().ID())
	}
	return strings.Join(ids, ", ")
}

// admitNode lets the broker ask for the certificates on record.
func (g *gate) admitNode(ctx context.Context, id wire.Identity, c broker.Certificate) error {
	return g.ask(func(gate *provisioner.Gate) (err error) {
		if c.Serial == "" {
			if c.Serial, err = gate.SerialOf(ctx, id, c.SHA256); err != nil {
				return err
			}
		}
		return gate.AdmitNode(ctx, id, c.Serial)
	})
}

// admitReturning asks the provisioner about a node that comes back in a recovery.
func (g *gate) admitReturning(ctx context.Context, id wire.Identity, leaf *x509.Certificate) error {
	return g.ask(func(gate *provisioner.Gate) error { return gate.AdmitReturning(ctx, id, leaf) })
}

// ask asks the provisioner's gate about a node.
func (g *gate) ask(about func(*provisioner.Gate) error) error {
	p := g.live.provisioner.Load()
	if p == nil {
		return &broker.Denied{Code: wire.CodeUnavailable, Err: errNotOpen}
	}
	if err := about(p.Gate); err != nil {
		return denied(err)
	}
	return nil
}

// connectionRefused reports a connection that the broker did not admit.
func (g *gate) connectionRefused(_ context.Context, p broker.Presented, denied *broker.Denied) {
	g.activity.ConnectionRefused(denied.Code)
	e := provisioner.RefusalEvent(&provisioner.Refusal{Code: denied.Code, Err: denied.Err}, g.opts.Now().UTC(), p.Address)
	e.Type = events.Attempt
	if n := (*broker.NotAdmitted)(nil); errors.As(denied.Err, &n) {
		e.Node, e.Serial = string(n.Node), n.Serial // asking about that node finds it
	}
	var ok bool
	if e.LeftOut, ok = g.budget.Report(p.Address); !ok {
		return // the broker's own lines are limited likewise
	}
	if s := g.Store(); s != nil {
		s.Emit(e)
	}
	g.reports.observe(e)
}

// denied is a refusal in the broker's words, which name code and node already.
func denied(err error) *broker.Denied {
	var r *provisioner.Refusal
	if errors.As(err, &r) && r.Err != nil {
		return &broker.Denied{Code: r.Code, Err: r.Err}
	}
	return &broker.Denied{Code: provisioner.CodeOf(err), Err: err}
}
