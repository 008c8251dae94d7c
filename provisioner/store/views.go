package store

import (
	"context"
	"fmt"
	"sync"

	"muster/provisioner/orders"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/trust"
)

// Subjects of entries, each followed by a key.
const (
	subjectPause      = "muster.entry.pause."
	subjectAnswer     = "muster.entry.verdict."
	subjectGrant      = "muster.entry.grant."
	subjectAllowance  = "muster.entry.allow."
	subjectSigner     = "muster.entry.signer."
	subjectOperator   = "muster.entry.operator."
	subjectSession    = "muster.entry.session."
	subjectRecoveries = "muster.entry.recovery."
	subjectUnfreeze   = "muster.entry.unfreeze."
	subjectClock      = "muster.entry.clock."
)

func (s *Store) fresh() error {
	if doubt := s.guard.doubt.Load(); doubt != nil {
		return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, *doubt)
	}
	if err := s.revocations.Fresh(); err != nil {
		return err
	}
	return s.entries.Fresh()
}

func (s *Store) openViews(ctx context.Context) error {
	r := s.newFollower(streamRevocations)
	revocations := addView(r, newView(subjectRevocation, (*trust.Revocation).LogKey))
	revocations.scope = trust.RevocationScope
	f := s.newFollower(streamEntries)
	grants := addView(f, newView(subjectGrant, (*orders.Grant).LogKey))
	allowances := addView(f, newView(subjectAllowance, (*orders.Allowance).LogKey))
	grants.useRoom, allowances.useRoom = s.useRoom, s.useRoom // grants of access may not use the reserved space
	s.entries, s.revocations = f, r
	s.logs = orders.Logs{
		Revocations: revocations,
		Pauses:      orders.Pauses{Log: addView(f, newView(subjectPause, (*orders.Pause).LogKey))},
		Answers:     orders.Answers{Log: addView(f, newView(subjectAnswer, (*orders.Answer).LogKey))},
		Grants:      grants,
		Allowances:  orders.NewAllowances(allowances),
		Signers:     addView(f, newView(subjectSigner, (*trust.SignerEntry).LogKey)),
		Operators: trust.Operators{Log: addView(f, newView(subjectOperator, (*trust.OperatorEntry).LogKey)),
			Revocations: revocations},
		Sessions: addView(f, newView(subjectSession, (*orders.Sessions).LogKey)),
		Recovery: addView(f,
			newView(subjectRecoveries, func(*orders.Recovery) string { return orders.RecoveryKey })),
		Unfrozen: addView(f, newView(subjectUnfreeze, func(u *orders.Unfreeze) string { return string(u.Token) })),
		Sync:     r.check,
		Fresh:    s.fresh,
	}
	s.Clock = addView(f, newView(subjectClock, func(*trust.ClockMark) string { return trust.ClockKey }))
	for _, f := range []*Follower{r, f} {
		if err := f.Open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Logs implements [provisioner.Store].
func (s *Store) Logs() *orders.Logs { return &s.logs }

// Run keeps the views up to date until ctx is done; then it returns nil.
func (s *Store) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { s.entries.Run(ctx) })
	both.Go(func() { s.revocations.Run(ctx) })
	both.Wait()
	return nil
}

func republishing(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.AllowDirect = true // gaps are read from any replica
	c.RePublish = &jetstream.RePublish{Source: c.Subjects[0], Destination: republishPrefix + c.Name + ".>"}
	return c
}
