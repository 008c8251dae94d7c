package provisioner

import (
	"context"
	"net/netip"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// DefaultChecksPerSecond is the default per source: at 325 µs for RSA-4096, under two percent of a core.
const DefaultChecksPerSecond = 50

const (
	// burstSeconds lets a rack that boots with a damaged token get its refusals at once.
	burstSeconds = 4

	// allSources is in limits of one source: 1,000 forgeries a second cost a third of a core.
	allSources = 20

	// Reports of refused attempts, per source and of all in multiples of that.
	reportsPerSecond = 10
	reportsAtOnce    = 100
	allReports       = 5
)

// A Budget bounds failed checks and reports of senders that have proven nothing, by source address ([limit.Source]).
// It is safe for concurrent use. Tokens verified before cost nothing, so an attack delays only new ones.
type Budget struct {
	checks  *limit.Keyed[netip.Prefix]
	reports *limit.Keyed[netip.Prefix]
}

// NewBudget returns a Budget of failed checks a second and source, 0 for no limit.
func NewBudget(checksPerSecond int, now func() time.Time) *Budget {
	b := &Budget{reports: limit.NewKeyed[netip.Prefix](limit.Rate{
		PerSecond: reportsPerSecond,
		Burst:     reportsAtOnce,
		All:       allReports,
		Now:       now,
	})}
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

// Charge takes one check from the budget of a source, an address with or without port. False: refuse with
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

// Report says whether to report a refused attempt, and how many were left out.
func (b *Budget) Report(source string) (leftOut int64, ok bool) {
	return b.reports.Take(limit.Source(source))
}

// Sources returns the number of sources charged or reported lately.
func (b *Budget) Sources() int {
	return max(b.reports.Len(), b.checks.Len())
}

func (p *Provisioner) shouldReport(ctx context.Context, e *events.Event) bool {
	if e.Code == wire.CodePaused {
		return p.repeats.paused.Allow()
	}
	if e.Type != events.Attempt {
		return true
	}
	leftOut, ok := p.cfg.Budget.Report(e.Source)
	if e.LeftOut = leftOut; leftOut > 0 {
		p.cfg.Log.WarnContext(ctx, "refused attempts not reported", "left_out", leftOut)
	}
	return ok
}
