package testbed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// ErrInjected replaces an acknowledgement.
var ErrInjected = errors.New("injected fault")

// A Fault is how a write fails. LostAnswer finds most bugs: the caller sees an error, but the store has the record.
type Fault int

// The faults.
const (
	Lost       Fault = iota + 1 // error returned, nothing written
	LostAnswer                  // error returned, record written
	Late                        // error returned, written before the next write
	Doubled                     // written twice, result of the second write returned
	Hung                        // no answer until the caller gives up, nothing written
)

type plan[E any] struct {
	mu     sync.Mutex
	faults []Fault                  // guarded by mu: of the next writes, in order
	before func(context.Context, E) // guarded by mu: once, before the next write
	after  func()                   // guarded by mu: once, after the next write and before its answer
	late   func()                   // guarded by mu: the delayed write
	writes int

	turn sync.RWMutex // held while before runs, read-held by writes
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

// next returns the fault of the next write, and runs the writes due before it.
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
		p.turn.Lock()
		before(ctx, e)
		p.turn.Unlock()
	}
	if late != nil {
		late()
	}
	return fault
}

func (p *plan[E]) written() {
	p.mu.Lock()
	after := p.after
	p.after = nil
	p.mu.Unlock()
	if after != nil {
		after()
	}
}

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

// Faults is a store with injected faults, in front of the real store. Without settings it injects nothing.
type Faults struct {
	provisioner.Store

	records     plan[*provisioner.Record]
	claims      plan[*trust.ClaimEntry]
	revocations plan[any]
	entries     plan[any]

	unreadable atomic.Bool
	stale      atomic.Bool
}

// Inject gives the next writes of records one fault each.
func (f *Faults) Inject(plan ...Fault) { f.records.inject(plan) }

// Before runs what once before the next write of a record, to simulate another writer.
func (f *Faults) Before(what func(context.Context, *provisioner.Record)) { f.records.first(what) }

// Puts returns how many writes of records were attempted.
func (f *Faults) Puts() int { return f.records.count() }

// SetUnreadable makes every read of records fail, or work again.
func (f *Faults) SetUnreadable(unreadable bool) { f.unreadable.Store(unreadable) }

// InjectClaims gives the next appends of claims one fault each.
func (f *Faults) InjectClaims(plan ...Fault) { f.claims.inject(plan) }

// BeforeClaims runs what once before the next append of claims.
func (f *Faults) BeforeClaims(what func(context.Context, *trust.ClaimEntry)) {
	f.claims.first(what)
}

// ClaimAppends returns how many appends of claims were attempted.
func (f *Faults) ClaimAppends() int { return f.claims.count() }

// Appends gives the next appends of revocations one fault each.
func (f *Faults) Appends(plan ...Fault) { f.revocations.inject(plan) }

// AfterAppend runs what once, after the next revocation is in the log and before its writer gets the answer.
func (f *Faults) AfterAppend(what func()) {
	f.revocations.mu.Lock()
	defer f.revocations.mu.Unlock()
	f.revocations.after = what
}

// SetStale makes the store's views stale, or fresh again.
func (f *Faults) SetStale(blind bool) { f.stale.Store(blind) }

// Entries gives the next writes of operators' entries one fault each.
func (f *Faults) Entries(plan ...Fault) { f.entries.inject(plan) }

// Put implements [provisioner.Store].
func (f *Faults) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	return write(ctx, &f.records, r, func(ctx context.Context) (trust.Revision, error) {
		return f.Store.Put(ctx, r, after)
	})
}

// Record implements [provisioner.Store].
func (f *Faults) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	if f.unreadable.Load() {
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

// A Clock is the real clock, which tests can move or stop. It is safe for concurrent use.
type Clock struct {
	offset atomic.Int64
	held   atomic.Pointer[time.Time]
	base   *Clock
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	return c.baseTime().Add(time.Duration(c.offset.Load()))
}

func (c *Clock) baseTime() time.Time {
	switch at := c.held.Load(); {
	case at != nil:
		return *at
	case c.base != nil:
		return c.base.Now()
	}
	return time.Now()
}

// at converts the real time t to this clock's time, for a store.
func (c *Clock) at(t time.Time) time.Time { return t.Add(time.Until(c.Now())) }

// Hold stops the clock, so that on a slow machine only Advance moves it.
func (c *Clock) Hold() {
	now := c.baseTime()
	c.held.Store(&now)
}

// Advance sets the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
