package testbed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// ErrInjected is what a fault returns in place of an acknowledgement.
var ErrInjected = errors.New("injected fault")

// A Fault is one way in which a write goes wrong. The second is the one that
// finds bugs: the caller sees an error, the store has the record.
type Fault int

// The faults.
const (
	Lost       Fault = iota + 1 // error returned, nothing written
	LostAnswer                  // error returned, record written
	Late                        // error returned, record written when the next write comes
	Doubled                     // written twice, and the answer is the second's
	Hung                        // no answer before the caller gives up, nothing written
)

// A plan is what goes wrong with writes of one kind.
type plan[E any] struct {
	mu     sync.Mutex
	faults []Fault                  // guarded by mu: of the next writes, in order
	before func(context.Context, E) // guarded by mu: once, before the next write
	after  func()                   // guarded by mu: once, after the next write and before its answer
	late   func()                   // guarded by mu: the write that is still on its way
	writes int                      // guarded by mu

	turn sync.RWMutex // held while before runs, and for reading by writes
}

func (p *plan[E]) inject(faults []Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

func (p *plan[E]) first(what func(context.Context, E)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = what
}

func (p *plan[E]) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

// next takes the fault of the next write, and makes the writes that come before it.
func (p *plan[E]) next(ctx context.Context, e E) (fault Fault) {
	p.mu.Lock()
	p.writes++
	before, late := p.before, p.late
	p.before, p.late = nil, nil
	if len(p.faults) > 0 {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	p.mu.Unlock()
	if before != nil {
		p.turn.Lock() // writes that come now wait
		before(ctx, e)
		p.turn.Unlock()
	}
	if late != nil {
		late()
	}
	return fault
}

// written runs what was to come after a write.
func (p *plan[E]) written() {
	p.mu.Lock()
	after := p.after
	p.after = nil
	p.mu.Unlock()
	if after != nil {
		after()
	}
}

// write writes e with put, as the plan says.
func write[E, R any](ctx context.Context, p *plan[E], e E, put func(context.Context) (R, error)) (at R, err error) {
	var none R
	fault := p.next(ctx, e)
	p.turn.RLock()
	defer p.turn.RUnlock()
	switch fault {
	case Lost:
		return none, ErrInjected
	case Hung:
		<-ctx.Done()
		return none, ctx.Err()
	case Late:
		p.mu.Lock()
		p.late = func() { _, _ = put(context.WithoutCancel(ctx)) }
		p.mu.Unlock()
		return none, ErrInjected
	case Doubled:
		if _, err := put(ctx); err != nil {
			return none, err
		}
	}
	at, err = put(ctx)
	p.written()
	if err == nil && fault == LostAnswer {
		return none, ErrInjected
	}
	return at, err
}

// Faults is a store whose writes go wrong as it is told. It passes everything
// else on to the real one. The zero value of its settings injects nothing.
type Faults struct {
	provisioner.Store

	records     plan[*provisioner.Record]
	claims      plan[*trust.ClaimEntry]
	revocations plan[any]
	entries     plan[any]

	unread atomic.Bool // no record can be read
	blind  atomic.Bool // views grow old
}

// Inject makes the next writes of records go wrong, one fault each.
func (f *Faults) Inject(plan ...Fault) { f.records.inject(plan) }

// Before runs what once, right before the next write of a record: another writer comes first.
func (f *Faults) Before(what func(context.Context, *provisioner.Record)) { f.records.first(what) }

// Puts returns how many writes of records were asked for.
func (f *Faults) Puts() int { return f.records.count() }

// Unreadable makes every read of records fail, or work again.
func (f *Faults) Unreadable(unreadable bool) { f.unread.Store(unreadable) }

// InjectClaims makes the next appends of claims go wrong, one fault each.
func (f *Faults) InjectClaims(plan ...Fault) { f.claims.inject(plan) }

// BeforeClaims runs what once, right before the next append of claims.
func (f *Faults) BeforeClaims(what func(context.Context, *trust.ClaimEntry)) {
	f.claims.first(what)
}

// ClaimAppends returns how many appends of claims were asked for.
func (f *Faults) ClaimAppends() int { return f.claims.count() }

// Appends makes the next writes to the log of revocations go wrong, one fault each.
func (f *Faults) Appends(plan ...Fault) { f.revocations.inject(plan) }

// AfterAppend runs what once, when the next entry is in the log of revocations and its writer
// has no answer yet.
func (f *Faults) AfterAppend(what func()) {
	f.revocations.mu.Lock()
	defer f.revocations.mu.Unlock()
	f.revocations.after = what
}

// Blind makes the views of the store count as old, or as fresh again.
func (f *Faults) Blind(blind bool) { f.blind.Store(blind) }

// Entries makes the next writes of operators' orders go wrong, one fault each: signers,
// operators, pauses, verdicts, the allow-list and grants.
func (f *Faults) Entries(plan ...Fault) { f.entries.inject(plan) }

// Put implements [provisioner.Store].
func (f *Faults) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	return write(ctx, &f.records, r, func(ctx context.Context) (trust.Revision, error) { return f.Store.Put(ctx, r, after) })
}

// Record implements [provisioner.Store].
func (f *Faults) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	if f.unread.Load() {
		return nil, 0, ErrInjected
	}
	return f.Store.Record(ctx, id)
}

// AppendClaims implements [trust.ClaimLog].
func (f *Faults) AppendClaims(
	ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry, after trust.Revision,
) (trust.Revision, error) {
	return write(ctx, &f.claims, e, func(ctx context.Context) (trust.Revision, error) {
		return f.Store.AppendClaims(ctx, tid, e, after)
	})
}
