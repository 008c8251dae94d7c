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
)

// A Plan has the faults of the writes of one kind.
type Plan[E any] struct {
	mu     sync.Mutex
	faults []Fault                  // guarded by mu: of the next writes, in order
	before func(context.Context, E) // guarded by mu: once, before the next write
	after  func()                   // guarded by mu: once, after the next write and before its answer
	late   func()                   // guarded by mu: the delayed write
	writes int                      // guarded by mu

	turn sync.RWMutex // held while before runs, read-held by writes
}

// Inject gives the next writes one fault each.
func (p *Plan[E]) Inject(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, faults...)
}

// Before runs what once before the next write, to simulate another writer.
func (p *Plan[E]) Before(what func(context.Context, E)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = what
}

// After runs what once, after the next write and before its writer gets the answer.
func (p *Plan[E]) After(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = what
}

// Writes returns how many writes were attempted.
func (p *Plan[E]) Writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

// next returns the fault of the next write, and runs the writes due before it.
func (p *Plan[E]) next(ctx context.Context, e E) (fault Fault) {
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

func (p *Plan[E]) written() {
	p.mu.Lock()
	after := p.after
	p.after = nil
	p.mu.Unlock()
	if after != nil {
		after()
	}
}

func write[E any](
	ctx context.Context, p *Plan[E], e E, put func(context.Context) (trust.Revision, error),
) (trust.Revision, error) {
	fault := p.next(ctx, e)
	p.turn.RLock()
	defer p.turn.RUnlock()
	switch fault {
	case Lost:
		return 0, ErrInjected
	case Late:
		p.mu.Lock()
		p.late = func() { _, _ = put(context.WithoutCancel(ctx)) }
		p.mu.Unlock()
		return 0, ErrInjected
	case Doubled:
		if _, err := put(ctx); err != nil {
			return 0, err
		}
	}
	at, err := put(ctx)
	p.written()
	if err == nil && fault == LostAnswer {
		return 0, ErrInjected
	}
	return at, err
}

// Faults is a store with injected faults, in front of the real store. Without settings it injects nothing.
type Faults struct {
	provisioner.Store

	RecordWrites     Plan[*provisioner.Record]
	ClaimWrites      Plan[*trust.ClaimEntry]
	RevocationWrites Plan[any]
	EntryWrites      Plan[any] // all other entries of operators

	Unreadable atomic.Bool // every read of records fails
	Stale      atomic.Bool // the views are stale
}

// Put implements [provisioner.Store].
func (f *Faults) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	return write(ctx, &f.RecordWrites, r, func(ctx context.Context) (trust.Revision, error) {
		return f.Store.Put(ctx, r, after)
	})
}

// Record implements [provisioner.Store].
func (f *Faults) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	if f.Unreadable.Load() {
		return nil, 0, ErrInjected
	}
	return f.Store.Record(ctx, id)
}

// AppendClaims implements [trust.ClaimLog].
func (f *Faults) AppendClaims(
	ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry, after trust.Revision,
) (trust.Revision, error) {
	return write(ctx, &f.ClaimWrites, e, func(ctx context.Context) (trust.Revision, error) {
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
