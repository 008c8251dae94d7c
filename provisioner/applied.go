package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// Applied makes the offer that a node confirmed its current certificate. It returns nil once the record is on disk,
// else a *[Refusal]. Only the signature proves a confirmation; over other protocols the edge vouches for it. Repeating
// it is harmless.
func (p *Provisioner) Applied(ctx context.Context, m *wire.Applied, source Source) error {
	c := &confirmation{
		Provisioner: p,
		m:           m,
		source:      source,
		attempt:     wire.NewID(),
	}
	begun := time.Now()
	record, repeated, err := c.confirm(ctx)
	p.done(RequestConfirm, begun, err)
	if err != nil {
		r := RefusalOf(err, wire.CodeUnavailable)
		e := RefusalEvent(m.Identity, r, p.moment(), source.Address)
		msg, unusable := "confirmation refused", r.Code == wire.CodeOfferUnusable
		if unusable {
			msg = "node cannot use its offer"
		}
		p.reportRefusal(ctx, slog.LevelWarn, msg, e, unusable)
		return r
	}
	p.reportProvisioned(ctx, record, c.attempt, source, repeated)
	return nil
}

func (p *Provisioner) reportProvisioned(ctx context.Context, r *Record, attempt string, source Source, repeated bool) {
	e := events.Event{
		Type:     events.Provisioned,
		Time:     p.moment(),
		Node:     string(r.Identity),
		Serial:   r.Current.Serial,
		Digest:   r.Current.Digest,
		Reason:   string(r.Decision.Reason),
		Token:    r.Token,
		Signer:   r.Signer,
		Site:     r.Site,
		Source:   source.Address,
		Sealed:   source.Sealed,
		Attempt:  attempt,
		Policy:   r.Decision.Policy,
		Repeated: repeated,
	}
	if repeated && !allowRepeat(p.repeats.messages, &e) {
		return
	}
	p.cfg.Emit(e)
	p.cfg.Log.InfoContext(ctx, "node provisioned", "node", e.Node, "serial", e.Serial, "source", e.Source,
		"repeated", e.Repeated)
}

type confirmation struct {
	*Provisioner

	m       *wire.Applied
	source  Source
	attempt string
}

func (c *confirmation) confirm(ctx context.Context) (*Record, bool, error) {
	id, err := wire.ParseIdentity(c.m.Identity)
	if err != nil {
		return nil, false, refuse(wire.CodeIdentityInvalid, err)
	}
	unlock, err := c.lockIdentity(ctx, id, c.source)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	record, after := c.records.recall(id)
	for range maxRounds {
		remembered := record != nil
		if !remembered {
			if record, after, err = c.cfg.Store.Record(ctx, id); err != nil {
				return nil, false, refuse(StoreCode(err), err)
			}
		}
		offer, repeated, err := matchOffer(record, c.m, c.source.Protocol)
		if remembered && (err != nil || repeated) {
			record = nil // see remembered
			continue
		}
		if err != nil {
			return nil, false, err
		}
		c.source.proven()
		c.source.Proven = nil
		if repeated {
			c.records.kickFormer(record)
			return record, true, nil
		}
		now := c.now()
		next := *record
		next.State, next.Current, next.Next = StateProvisioned, offer, nil
		next.ProvisionedAt, next.UpdatedAt, next.Attempt = now, now, c.attempt
		next.keepSuperseded(record, now)
		err = c.records.publish(ctx, &next, after, nil)
		if err == nil {
			c.records.kickSuperseded(record, &next)
		}
		if !errors.Is(err, errAgain) {
			return &next, false, err
		}
		record = nil
	}
	return nil, false, refuse(wire.CodeBusy, errAgain)
}

// matchOffer also returns whether the offer is current already. The refusal reveals nothing about the record to
// strangers.
func matchOffer(r *Record, m *wire.Applied, over Protocol) (*Issued, bool, error) {
	if r == nil || r.State == StateRetired || r.Protocol != over {
		return nil, false, refuse(wire.CodeNotIssued, fmt.Errorf("no certificate of %q is live", m.Identity))
	}
	digest, why, unusable := m.Unusable()
	if !unusable {
		digest = m.Digest
	}
	for _, i := range []*Issued{r.Next, r.Current} {
		if i == nil || i.Serial != m.Serial || i.Digest != digest {
			continue
		}
		key, err := ca.PublicKey(i.DER)
		if err != nil {
			return nil, false, refuse(wire.CodeUnavailable,
				fmt.Errorf("record of %q: certificate %s: %w", m.Identity, i.Serial, err))
		}
		err = wire.CheckSignature(key, wire.AppliedDigest(m.Identity, m.Serial, m.Digest), m.Signature)
		if err != nil && over == ProtocolMuster {
			return nil, false, refuse(wire.CodeAppliedSignature, err)
		}
		if r.State == StateRevoked {
			return nil, false, refuse(wire.CodeIdentityRevoked, errRevoked)
		}
		if unusable {
			return nil, false, refuse(wire.CodeOfferUnusable, errors.New(why))
		}
		return i, i == r.Current, nil
	}
	return nil, false, refuse(wire.CodeNotIssued,
		fmt.Errorf("certificate %.64s with digest %.64s was not offered to %q", m.Serial, m.Digest, m.Identity))
}
