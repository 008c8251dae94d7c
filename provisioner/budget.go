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

// DefaultChecksPerSecond is how many failed checks a second one source has, if
// nothing else is configured: at 325 µs for the dearest kind, under two percent
// of a core.
const DefaultChecksPerSecond = 50

const (
	// burstSeconds is how many seconds' worth a source may use at once. A rack of
	// machines with a damaged token that boots together is told what is wrong
	// with it, each of them.
	burstSeconds = 4

	// allSources is how many times the limit of one source all of them have
	// together: 1,000 forgeries a second cost a third of a core.
	allSources = 20

	// reportsPerSecond and reportsAtOnce bound what is written of the refused
	// attempts of one source; allReports is how many times that all have
	// together. More would tell nobody more; chosen.
	reportsPerSecond = 10
	reportsAtOnce    = 100
	allReports       = 5
)

// A Budget bounds what senders that have proven nothing can make a provisioner do, by their address
// ([limit.Source]): costly checks that fail, and lines about them. The broker's gate and the provisioner share one.
// It is safe for concurrent use.
//
// Machines behind one address share its budget with an attacker there. All addresses together have a budget, too:
// with enough addresses, an attacker can have every check refused. Tokens that were good before are not checked
// again (package jwt), so only machines with tokens not presented yet wait, while the attack lasts.
type Budget struct {
	checks  *limit.Keyed[netip.Prefix] // nil is endless
	reports *limit.Keyed[netip.Prefix]
}

// NewBudget returns a Budget of so many failed checks a second and source, 0
// for no bound. Four seconds' worth can be used at once.
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

// Charge takes the price of one check from the budget of a source, an IP address with or without a port. False means
// that it is spent: do not check, and tell the sender to come back ([wire.CodeSourceLimited]).
func (b *Budget) Charge(source string) bool { return b.checks.Allow(limit.Source(source)) }

// Refund gives back what was charged for a check that succeeded.
func (b *Budget) Refund(source string) { b.checks.Refund(limit.Source(source)) }

// Of returns the budget of one source, for [jwt.Verifier.VerifyFrom].
func (b *Budget) Of(source string) jwt.Budget { return sourceBudget{b, source} }

// sourceBudget is the part of a Budget that belongs to a source.
type sourceBudget struct {
	budget *Budget
	source string
}

// Charge implements [jwt.Budget].
func (s sourceBudget) Charge() bool { return s.budget.Charge(s.source) }

// Refund implements [jwt.Budget].
func (s sourceBudget) Refund() { s.budget.Refund(s.source) }

// Report says whether one more refused attempt from a source is to be written down, and if so, how many of that
// source have not been since the last one that was.
func (b *Budget) Report(source string) (leftOut int64, ok bool) {
	return b.reports.Take(limit.Source(source))
}

// Sources returns how many sources have lately sent what proved nothing and was charged or reported.
func (b *Budget) Sources() int {
	return max(b.reports.Len(), b.checks.Len())
}

// reported says whether a refusal is to be reported, in the log and as the
// event e. All are, but for the attempts of those who have proven nothing and
// make too many of them, and but for most of those who wait for a pause to end.
func (p *Provisioner) reported(ctx context.Context, e *events.Event) bool {
	if e.Code == wire.CodePaused {
		return p.said.paused.Allow()
	}
	if e.Type != events.Attempt {
		return true
	}
	leftOut, ok := p.cfg.Budget.Report(e.Source)
	if e.LeftOut = leftOut; leftOut > 0 {
		p.cfg.Log.WarnContext(ctx, "attempts not reported", "left_out", leftOut)
	}
	return ok
}
