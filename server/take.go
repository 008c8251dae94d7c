package server

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// take checks what a reply offers, and puts it in force. A provisioner whose
// offer cannot be used hears why: to it that looks like a reply that was lost.
func (a *agent) take(ctx context.Context, conn *link.Conn, reply *wire.Reply, want expectation) (*offer, error) {
	if reply.Enrolled == nil {
		return nil, fmt.Errorf("%w: a confirmation, want a certificate", errReply)
	}
	o, err := checkReply(reply.Enrolled, want)
	if err != nil {
		offered := pending{Identity: string(want.identity), Serial: reply.Enrolled.Serial, Digest: reply.Enrolled.Digest}
		err = a.complain(ctx, conn, want.key, offered, err)
		remedy := advice.Of(err)
		if errors.Is(err, trust.ErrExpired) {
			remedy = fmt.Sprintf("this machine's clock says %s, and by it a certificate is over that a provisioner has just given out: "+
				"set the clock that is wrong", a.cfg.Now().UTC().Format(time.RFC3339))
		}
		return nil, advice.New(err, cmp.Or(remedy,
			"see the provisioner's log; if it says that all is well, replies are altered on the way"))
	}
	if err := a.sets.apply(ctx, o.files); err != nil {
		_ = a.complain(ctx, conn, want.key, o.pending, err) // it is this node's own to mend
		return nil, fmt.Errorf("apply: %w", err)
	}
	a.state.doubt, a.state.contact = nil, contact{}
	if leaf := o.creds.Leaf(); !a.clock.at(leaf.NotBefore).Before(renewAt(leaf, 0)) { // the machine's clock is ahead
		_, life := lifeOf(leaf)
		a.renewNot = time.Now().Add(life / mostRenewals)
	}
	message := "configuration applied"
	if want.renewed {
		message = "certificate renewed"
	}
	a.cfg.Log.InfoContext(ctx, message, "node", want.identity, "serial", o.creds.Serial, "elapsed", a.elapsed()) //nolint:sloglint // one of two literals
	a.observe(Event{Kind: EventApplied, Serial: o.creds.Serial, Broker: conn.Broker, Elapsed: a.elapsed()})
	return o, nil
}

// maxOffered bounds serial and digest of an offer that is complained of, which
// are the sender's word: 32 and 64 digits.
const maxOffered = 64

// complain says that an offer cannot be used (see [wire.Unusable]), over the
// connection that it came on, signed by the key that it is for. It returns why,
// and with it how long to wait: what the provisioner gives out is to be
// corrected first, mostly for all nodes.
func (a *agent) complain(ctx context.Context, conn *link.Conn, key crypto.Signer, offered pending, why error) error {
	if len(offered.Serial) > maxOffered || len(offered.Digest) > maxOffered {
		return why // no provisioner has offered that
	}
	offered.Digest = wire.Unusable(offered.Digest, why.Error())
	reply, err := a.sendApplied(ctx, conn, key, offered)
	wait := link.SlowedBy(err)
	switch {
	case err != nil:
		a.cfg.Log.DebugContext(ctx, "complaint not heard", "node", offered.Identity, "err", err)
	case reply.Refusal != nil:
		wait = reply.Refusal.Wait()
	}
	if wait == 0 {
		return why
	}
	return link.Slow(why, a.newBackoff().told(wait))
}

// obeyed says that orders with these verbs are done.
func (a *agent) obeyed(ctx context.Context, verbs ...wire.Verb) {
	if err := a.orders.Obeyed(verbs...); err != nil {
		a.cfg.Log.WarnContext(ctx, "order stays on disk, and the next agent does it once more", "path", a.orders.Path(),
			"err", err)
	}
}

// agentName is what the agent calls itself in requests, cut to the protocol's limit.
func (a *agent) agentName() string {
	name := "muster-server " + a.cfg.Version
	return name[:min(len(name), 128)]
}
