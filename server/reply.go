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

// applyReply checks a reply and puts its files in force. It reports an unusable reply, which the provisioner would
// otherwise consider lost.
func (a *agent) applyReply(ctx context.Context, conn *link.Conn, reply *link.Reply, want expectation) (*offer, error) {
	if reply.Enrolled == nil {
		return nil, fmt.Errorf("%w: a confirmation, want a certificate", errReply)
	}
	o, err := checkReply(reply.Enrolled, want)
	if err == nil {
		err = checkSigned(reply, want.authority, want.identity, o.creds, want.now)
	}
	if err != nil {
		offered := pending{
			Identity: string(want.identity),
			Serial:   reply.Enrolled.Serial,
			Digest:   reply.Enrolled.Digest,
		}
		err = a.reportUnusable(ctx, conn, want.key, offered, err)
		remedy := advice.Of(err)
		if errors.Is(err, trust.ErrExpired) {
			remedy = fmt.Sprintf("by this machine's clock (%s) the certificate has already expired: "+
				"correct this machine's clock or the provisioner's", a.cfg.Now().UTC().Format(time.RFC3339))
		}
		return nil, advice.New(err, cmp.Or(remedy,
			"see the provisioner's log; if it shows no error, something on the network alters replies"))
	}
	set, err := a.sets.withPushed(o.files, reply.Enrolled.Certificates)
	if err == nil {
		err = a.sets.apply(ctx, set)
	}
	if err != nil {
		_ = a.reportUnusable(ctx, conn, want.key, o.pending, err) // best effort: the fault is this node's disk
		return nil, fmt.Errorf("apply: %w", err)
	}
	a.state.unusable, a.state.contact = nil, contact{}
	a.faults.set(faultRenewal, nil)
	if leaf := o.creds.Leaf(); !a.clock.at(leaf.NotBefore).Before(renewAt(leaf, 0)) {
		_, life := trust.LifeOf(leaf)
		a.noRenewalBefore = time.Now().Add(life / mostRenewals)
	}
	message := "configuration applied"
	if want.renewed {
		message = "certificate renewed"
	}
	a.cfg.Log.InfoContext(ctx, message, //nolint:sloglint // one of two literals
		"node", want.identity, "serial", o.creds.Serial, "elapsed", a.elapsed())
	a.observe(Event{Kind: EventApplied, Serial: o.creds.Serial})
	return o, nil
}

// maxReportedField bounds serial and digest of a reply that is reported as unusable: 32 and 64 digits.
const maxReportedField = 64

// reportUnusable reports an unusable reply (see [wire.Unusable]), signed by the requested key. It returns why with a
// wait, since an operator has to correct the configuration.
func (a *agent) reportUnusable(ctx context.Context, conn *link.Conn, key crypto.Signer, offered pending,
	why error) error {
	if len(offered.Serial) > maxReportedField || len(offered.Digest) > maxReportedField {
		return why
	}
	offered.Digest = wire.Unusable(offered.Digest, why.Error())
	reply, err := a.sendApplied(ctx, conn, key, offered)
	wait := link.WaitOf(err)
	switch {
	case err != nil:
		a.cfg.Log.DebugContext(ctx, "unusable reply not reported", "node", offered.Identity, "err", err)
	case reply.Refusal != nil:
		wait = reply.Refusal.Wait()
	}
	if wait == 0 {
		return why
	}
	return link.WithWait(why, a.newBackoff().RetryAfter(wait))
}

func (a *agent) ordersDone(ctx context.Context, verbs ...wire.Verb) {
	if err := a.orders.Finish(verbs...); err != nil {
		a.cfg.Log.WarnContext(ctx, "could not remove a completed command from disk: it runs again after a restart",
			"path", a.orders.Path(), "err", err)
	}
}

func (a *agent) agentName() string {
	name := "muster-server " + a.cfg.Version
	return name[:min(len(name), 128)]
}
