package provisioner

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/jwt"
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
	// together: 1,000 forgeries a second cost a third of a core. It also bounds
	// the table of sources, which would otherwise grow with the attackers.
	allSources = 20

	// reportsPerSecond and reportsAtOnce bound what is written of the refused
	// attempts of one source; allReports is how many times that all have
	// together. More would tell nobody more; chosen.
	reportsPerSecond = 10
	reportsAtOnce    = 100
	allReports       = 5
)

// A Budget bounds what those who have proven nothing can make a provisioner do,
// by where they come from: costly checks that fail, and lines about them. The
// broker's gate and the provisioner share one. It is safe for concurrent use; a
// nil one bounds nothing.
//
// A source is an address, or the /64 of an IPv6 address, which one machine has
// for itself. Machines behind one address share its budget with whoever attacks
// from there. All sources together have a budget, too: with enough addresses, an
// attacker can have checks refused to everybody. Tokens that were good before
// are not checked again (package jwt), so that holds up only machines with
// tokens that nobody has presented yet, and only while it lasts.
type Budget struct {
	checks  *buckets // nil is endless
	reports *buckets
	unsaid  atomic.Int64 // reports left out since the last one
}

// NewBudget returns a Budget of so many failed checks a second and source, 0
// for no bound. Four seconds' worth can be used at once.
func NewBudget(checksPerSecond int, now func() time.Time) *Budget {
	b := &Budget{reports: newBuckets(reportsPerSecond, reportsAtOnce, allReports, now)}
	if checksPerSecond > 0 {
		b.checks = newBuckets(float64(checksPerSecond), float64(checksPerSecond*burstSeconds), allSources, now)
	}
	return b
}

// Charge takes the price of one check from the budget of a source, an IP
// address with or without a port. False means that it is spent: do not check,
// and tell the sender to come back ([wire.CodeSourceLimited]). What is no
// address shares one budget with all that is none.
func (b *Budget) Charge(source string) bool {
	if b == nil || b.checks == nil {
		return true
	}
	return b.checks.take(sourceKey(source))
}

// Refund gives back what was charged for a check that succeeded.
func (b *Budget) Refund(source string) {
	if b != nil && b.checks != nil {
		b.checks.giveBack(sourceKey(source))
	}
}

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

// Report says whether one more refused attempt from a source is to be written
// down, and if so, how many have not been since the last one that was, from
// wherever they came.
func (b *Budget) Report(source string) (leftOut int64, ok bool) {
	if b == nil {
		return 0, true
	}
	if !b.reports.take(sourceKey(source)) {
		b.unsaid.Add(1)
		return 0, false
	}
	return b.unsaid.Swap(0), true
}

// reported counts a refusal, and says whether a refusal is to be reported, in the log and as the
// event e. All are, but for the attempts of those who have proven nothing and
// make too many of them, and but for most of those who wait for a pause to end.
func (p *Provisioner) reported(ctx context.Context, e *Event) bool {
	e.OfSource = p.cfg.Attempts.Count(e)
	if e.Code == wire.CodePaused {
		return p.pauses.reports.Allow()
	}
	if e.Type != EventAttempt {
		return true
	}
	leftOut, ok := p.cfg.Budget.Report(e.Source)
	if e.LeftOut = leftOut; leftOut > 0 {
		p.cfg.Log.WarnContext(ctx, "attempts not reported", "left_out", leftOut)
	}
	return ok
}

// Sources returns how many sources have lately sent what proved nothing and was
// charged or reported: those whose budget is not whole again, which takes some
// seconds. A nil budget has none.
func (b *Budget) Sources() int {
	if b == nil {
		return 0
	}
	n := b.reports.sources()
	if b.checks != nil {
		n = max(n, b.checks.sources())
	}
	return n
}

// sourceKey returns what a source is counted under.
func sourceKey(source string) netip.Prefix {
	addr, err := netip.ParseAddr(source)
	if err != nil {
		port, err := netip.ParseAddrPort(source)
		if err != nil {
			return netip.Prefix{}
		}
		addr = port.Addr()
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64 // RFC 6177: no site gets less
	}
	key, _ := addr.Prefix(bits) // never fails: bits fit
	return key
}

// buckets are token buckets by source, kept as what each source has used and
// not yet got back. A source that has used nothing is not in the table, so that
// forgetting it forgives nothing. Whatever comes in is used up within
// burst/rate seconds, and all sources together have a bucket as well, so the
// table holds no more than that bucket and its rate over such a time allow.
type buckets struct {
	rate, burst float64 // of one source
	factor      float64 // of all sources together
	now         func() time.Time

	mu      sync.Mutex
	used    map[netip.Prefix]usage // guarded by mu
	all     usage                  // guarded by mu
	sweepAt int                    // guarded by mu: size at which to look for sources to forget
}

// usage is what was used up at an instant.
type usage struct {
	amount float64
	at     time.Time
}

// minSweep is the size below which a table is not worth cleaning.
const minSweep = 1024

func newBuckets(rate, burst, factor float64, now func() time.Time) *buckets {
	return &buckets{rate: rate, burst: burst, factor: factor, now: now, used: make(map[netip.Prefix]usage), sweepAt: minSweep}
}

// left returns what of u is still used up at now, with so much coming back each
// second. A clock that goes back gives nothing back and takes nothing.
func (u usage) left(now time.Time, rate float64) float64 {
	elapsed := max(now.Sub(u.at), 0).Seconds()
	return max(u.amount-elapsed*rate, 0)
}

// take uses one of the source's and one of everybody's, or neither.
func (b *buckets) take(source netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	one, all := b.used[source].left(now, b.rate), b.all.left(now, b.rate*b.factor)
	if one+1 > b.burst || all+1 > b.burst*b.factor {
		return false
	}
	b.used[source], b.all = usage{one + 1, now}, usage{all + 1, now}
	if len(b.used) > b.sweepAt {
		b.sweep(now)
	}
	return true
}

// giveBack undoes one take.
func (b *buckets) giveBack(source netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.all = usage{max(b.all.left(now, b.rate*b.factor)-1, 0), now}
	if one := b.used[source].left(now, b.rate) - 1; one > 0 {
		b.used[source] = usage{one, now}
	} else {
		delete(b.used, source)
	}
}

// sources returns how many sources have used something up.
func (b *buckets) sources() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(b.now())
	return len(b.used)
}

// sweep forgets the sources that have everything back.
func (b *buckets) sweep(now time.Time) {
	for source, u := range b.used {
		if u.left(now, b.rate) == 0 {
			delete(b.used, source)
		}
	}
	b.sweepAt = max(minSweep, 2*len(b.used))
}
