package provisioner

import (
	"context"
	"net/netip"
	"time"

	"muster/internal/limit"
	"muster/jwt"
	"muster/provisioner/events"
)

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
	b := &Budget{reports: limit.NewKeyed[netip.Prefix](limit.Rate{
		PerSecond: reportsPerSecond,
		Burst:     reportsAtOnce,
		All:       allReports,
		Now:       now,
	})}
	b.firsts = limit.NewKeyed[netip.Prefix](limit.Rate{
		PerSecond: 1 / time.Minute.Seconds(),
		Burst:     1,
		All:       firstReports,
		Now:       now,
	})
	if checksPerSecond > 0 {
		b.checks = limit.NewKeyed[netip.Prefix](limit.Rate{
			PerSecond: float64(checksPerSecond),
			Burst:     checksPerSecond * burstSeconds,
			All:       allSources,
			Now:       now,
		})
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

// shouldReport bounds the reports about refused requests: by node if its key is on record, else by address, since token
// holders can invent names.
func (p *Provisioner) shouldReport(ctx context.Context, e *events.Event, onRecord bool) bool {
	if onRecord {
		return allowRepeat(p.repeats.messages, e)
	}
	leftOut, ok := p.cfg.Budget.Report(e.Source)
	if e.LeftOut = leftOut; leftOut > 0 {
		p.cfg.Log.WarnContext(ctx, "refusals not reported", "source", e.Source, "left_out", leftOut)
	}
	return ok
}
