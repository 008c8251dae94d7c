package provisioner

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

const (
	// An unconfirmed offer is protected this long. A node that lost its staged key waits no longer than a reboot
	// takes; a stolen key gets 30 certificates an hour at most.
	minOfferAge = 2 * time.Minute

	// maxSuperseded bounds the replaced certificates on a record: 64 take 10 kB. Certificates of 30 days that are
	// renewed every 20 days leave at most two.
	maxSuperseded = 64

	// maxBusyRetry bounds the retry time of a node that waits for a certificate to expire.
	maxBusyRetry = 5 * time.Minute
)

// keepSuperseded takes over the unexpired certificates of the previous revision, before. believed must not come from a
// clock that may have jumped ahead. Every write calls it, since old revisions are deleted.
func (r *Record) keepSuperseded(before *Record, believed time.Time) {
	if before == nil {
		return
	}
	var kept []trust.RevokedCertificate
	drops := func(serial string, notAfter time.Time) bool {
		same := func(i *Issued) bool { return i != nil && i.Serial == serial }
		return same(r.Current) || same(r.Next) || !believed.Before(notAfter) ||
			slices.ContainsFunc(kept, func(c trust.RevokedCertificate) bool { return c.Serial == serial })
	}
	for _, c := range before.Superseded {
		if !drops(c.Serial, c.NotAfter) {
			kept = append(kept, c)
		}
	}
	for _, i := range []*Issued{before.Current, before.Next} {
		if i != nil && !drops(i.Serial, i.NotAfter) {
			kept = append(kept, i.forCRL())
		}
	}
	r.Superseded = kept
}

// An unparsable certificate is on no CRL, but no node can present it either.
func (i *Issued) forCRL() trust.RevokedCertificate {
	c := trust.RevokedCertificate{Serial: i.Serial, NotAfter: i.NotAfter}
	if certificate, err := x509.ParseCertificate(i.DER); err == nil {
		c.Issuer = hex.EncodeToString(certificate.AuthorityKeyId)
	}
	return c
}

func (a *proof) busy(wait time.Duration, err error) error {
	if err == nil {
		return nil
	}
	r := refuse(wire.CodeBusy, err)
	r.After = wait
	return r
}

// pace delays owners only. New identities have quotas; grants and one-time tokens are an operator's decision.
func (a *attempt) pace() error {
	c := claim{keyHash: a.csr.KeyHash, vouching: a.vouching, requested: a.now()}
	return a.busy(a.record.tooSoon(a.reason, c, func(serial string) bool {
		return a.revocations.Serial(serial) != nil
	}))
}

func (r *Record) tooSoon(reason Reason, c claim, revoked func(serial string) bool) (time.Duration, error) {
	if reason != ReasonRenew && reason != ReasonContinue && reason != ReasonContinuity {
		return 0, nil
	}
	now := c.requested
	// A renewal signed with the offer's key proves that the node has the offer.
	if reason != ReasonRenew || r.Next == nil || r.Next.KeyHash != c.vouching {
		if wait, err := r.protectedOffer(c.keyHash, now); err != nil {
			return wait, err
		}
	}
	if len(r.Live(now)) == 0 {
		return 0, nil // a node whose certificates expired may come back at once
	}
	count, wait := 0, maxBusyRetry
	for _, s := range r.Superseded {
		// A new owner does not wait for the former owner's revoked ones.
		if now.Before(s.NotAfter) && !revoked(s.Serial) {
			count, wait = count+1, min(wait, s.NotAfter.Sub(now))
		}
	}
	if count >= maxSuperseded {
		return wait, fmt.Errorf("%d superseded certificates have not expired, limit %d", count, maxSuperseded)
	}
	return 0, nil
}

// protectedOffer returns why the offer on record must not yet be replaced by one for the key, and for how long. A
// changed configuration does not extend this, or repeated requests would block the node forever.
func (r *Record) protectedOffer(keyHash string, now time.Time) (time.Duration, error) {
	n := r.Next
	if !n.live(now) || n.KeyHash == keyHash {
		return 0, nil
	}
	offered := n.OfferedAt
	if r.Current != nil && r.Current.Serial == n.Serial {
		offered = r.UpdatedAt
	}
	// Abs: the clocks of provisioners differ.
	if age := now.Sub(offered).Abs(); age < minOfferAge {
		return minOfferAge - age, fmt.Errorf("certificate %s was offered to another key %v ago and may still be "+
			"confirmed, wait %v", n.Serial, age, minOfferAge)
	}
	return 0, nil
}

// DefaultChecksPerSecond is the default per source. At 325 µs a check (RSA-4096) it costs less than two percent of a
// core.
const DefaultChecksPerSecond = 50

const (
	// burstSeconds allows bursts: a rack that boots with a damaged token gets its refusals at once.
	burstSeconds = 4

	// allSources is the limit of all sources, in limits of one: 1,000 forgeries a second cost a third of a core.
	allSources = 20

	// Reports of refusals, per source; allReports is the limit of all, in limits of one. At eleven a second, with
	// firstReports, the events of two days are kept.
	reportsPerSecond = 2
	reportsAtOnce    = 100
	allReports       = 5

	// Sources that get a report each minute even if a few use up allReports.
	firstReports = 60
)

// A Budget bounds failed checks, and reports about refusals, by source address ([limit.Source]). It is
// safe for concurrent use. Tokens verified before cost nothing, so an attack delays only new tokens.
type Budget struct {
	checks  *limit.Keyed[netip.Prefix]
	reports *limit.Keyed[netip.Prefix]
	firsts  *limit.Keyed[netip.Prefix]
}

// NewBudget returns a Budget of that many failed checks a second per source; 0 means no limit.
func NewBudget(checksPerSecond int, now func() time.Time) *Budget {
	b := &Budget{
		reports: keyed[netip.Prefix](reportsAtOnce, time.Second/reportsPerSecond, allReports, now),
		firsts:  keyed[netip.Prefix](1, time.Minute, firstReports, now),
	}
	if checksPerSecond > 0 {
		every := time.Second / time.Duration(checksPerSecond)
		b.checks = keyed[netip.Prefix](checksPerSecond*burstSeconds, every, allSources, now)
	}
	return b
}

// Charge takes one check from the budget of a source, an address with or without port. If false, refuse with
// [wire.CodeSourceLimited].
func (b *Budget) Charge(source string) bool { return b.checks.Allow(limit.Source(source)) }

// Refund undoes Charge after a check that succeeded.
func (b *Budget) Refund(source string) { b.checks.Refund(limit.Source(source)) }

// Of returns the budget of one source.
func (b *Budget) Of(source string) jwt.Budget { return sourceBudget{b, source} }

type sourceBudget struct {
	budget *Budget
	source string
}

// Charge implements [jwt.Budget].
func (s sourceBudget) Charge() bool { return s.budget.Charge(s.source) }

// Refund implements [jwt.Budget].
func (s sourceBudget) Refund() { s.budget.Refund(s.source) }

// Report returns whether to report a refused attempt, and how many were left out.
func (b *Budget) Report(source string) (leftOut int64, ok bool) {
	key := limit.Source(source)
	if b.firsts.Allow(key) {
		return 0, true // a later report says what was left out
	}
	return b.reports.Take(key)
}

// reportRefusal bounds the reports by node if its key is on record, else by address, since token holders can invent
// names.
func (p *Provisioner) reportRefusal(ctx context.Context, level slog.Level, msg string, e events.Event, onRecord bool) {
	ok := onRecord && allowRepeat(p.repeats.messages, &e)
	if !onRecord {
		if e.LeftOut, ok = p.cfg.Budget.Report(e.Source); e.LeftOut > 0 {
			p.cfg.Log.WarnContext(ctx, "refusals not reported", "source", e.Source, "left_out", e.LeftOut)
		}
	}
	if ok {
		p.cfg.Emit(e)
		p.cfg.Log.Log(ctx, level, msg, "node", e.Node, "code", e.Code, //nolint:sloglint // callers pass literals
			"source", e.Source, "token_id", e.Token, "err", e.Cause)
	}
}
