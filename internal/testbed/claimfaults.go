package testbed

import (
	"context"
	"sync"

	"muster/jwt"
	"muster/provisioner"
)

// claimFaults is what [Faults] does to claims of limited tokens.
type claimFaults struct {
	mu      sync.Mutex
	plan    []Fault                                              // guarded by mu: for the next appends, in order
	before  func(ctx context.Context, e *provisioner.ClaimEntry) // guarded by mu: once, before the next append
	late    func()                                               // guarded by mu: the append that is still on its way
	appends int                                                  // guarded by mu
}

// InjectClaims makes the next appends of claims go wrong, one fault each.
func (f *Faults) InjectClaims(plan ...Fault) {
	f.claims.mu.Lock()
	defer f.claims.mu.Unlock()
	f.claims.plan = append(f.claims.plan, plan...)
}

// BeforeClaims runs what once, right before the next append of claims: somebody
// else's comes first.
func (f *Faults) BeforeClaims(what func(ctx context.Context, e *provisioner.ClaimEntry)) {
	f.claims.mu.Lock()
	defer f.claims.mu.Unlock()
	f.claims.before = what
}

// ClaimAppends returns how many appends of claims were asked for.
func (f *Faults) ClaimAppends() int {
	f.claims.mu.Lock()
	defer f.claims.mu.Unlock()
	return f.claims.appends
}

// AppendClaims implements [provisioner.ClaimLog].
func (f *Faults) AppendClaims(ctx context.Context, tid jwt.TokenID, e *provisioner.ClaimEntry, after provisioner.Revision) (provisioner.Revision, error) {
	c := &f.claims
	c.mu.Lock()
	c.appends++
	before, late := c.before, c.late
	c.before, c.late = nil, nil
	fault := Fault(0)
	if len(c.plan) > 0 {
		fault, c.plan = c.plan[0], c.plan[1:]
	}
	c.mu.Unlock()
	if before != nil {
		before(ctx, e)
	}
	if late != nil {
		late()
	}
	switch fault {
	case Lost:
		return 0, ErrInjected
	case LostAnswer:
		if _, err := f.Store.AppendClaims(ctx, tid, e, after); err != nil {
			return 0, err
		}
		return 0, ErrInjected
	case Doubled:
		if _, err := f.Store.AppendClaims(ctx, tid, e, after); err != nil {
			return 0, err
		}
		return f.Store.AppendClaims(ctx, tid, e, after)
	case Late:
		c.mu.Lock()
		c.late = func() { _, _ = f.Store.AppendClaims(context.WithoutCancel(ctx), tid, e, after) }
		c.mu.Unlock()
		return 0, ErrInjected
	default:
		return f.Store.AppendClaims(ctx, tid, e, after)
	}
}
