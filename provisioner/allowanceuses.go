package provisioner

import (
	"context"
	"errors"
	"slices"
	"sync"

	"muster/internal/wire"
)

// A pendingUse is an attempt's use of a limited allow-list entry, on its way into the store.
type pendingUse struct {
	AllowanceUse

	entry string // [Allowance.ID] of what let it in

	// Whoever has the turn of the pattern owns these.
	settled bool
	err     error // once settled; nil: it is in the store
}

func (u *pendingUse) holder() holder { return holder{u.KeyHash, u.Identity} }

func (u *pendingUse) settle(err error) { u.settled, u.err = true, err }

// pendingUses is where the uses of one entry gather, so that one write carries those of all who wait:
// each is written over the ones before, and of many that wrote by themselves all but one would begin
// again, or wait for as long as the store is far, times as many as come at once. As with a
// [ledger], there is no goroutine to it: whoever has the turn writes for the others too. The
// zero value is ready.
type pendingUses struct {
	turns keyLocks[wire.Pattern] // of uses, and of what operators write

	mu      sync.Mutex
	waiting map[wire.Pattern][]*pendingUse // guarded by mu
}

func (us *pendingUses) join(p wire.Pattern, u *pendingUse) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.waiting == nil {
		us.waiting = make(map[wire.Pattern][]*pendingUse)
	}
	us.waiting[p] = append(us.waiting[p], u)
}

// leave takes u away, which nobody waits for any more. Who has it in hand may still write it.
func (us *pendingUses) leave(p wire.Pattern, u *pendingUse) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.waiting[p] = slices.DeleteFunc(us.waiting[p], func(w *pendingUse) bool { return w == u })
	if len(us.waiting[p]) == 0 {
		delete(us.waiting, p)
	}
}

// unsettled returns the uses that wait, in the order in which they came. The caller has the turn.
func (us *pendingUses) unsettled(p wire.Pattern) []*pendingUse {
	us.mu.Lock()
	defer us.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(us.waiting[p]), func(u *pendingUse) bool { return u.settled })
}

// writeUses works on the uses of a pattern that wait until each is settled. If ctx is done before,
// it returns an error, and those of others are left to who has the next turn, who finds in the
// store what was written. The caller has the turn. What comes between is a use at another provisioner, or an
// operator's change there.
//
// The process may die behind a write: the same key asking again has its use already.
func (p *Provisioner) writeUses(ctx context.Context, pattern wire.Pattern) error {
	waiting := p.allowances.uses.unsettled(pattern)
	settle := func(list []*pendingUse, err error) error {
		if ctx.Err() != nil {
			return err
		}
		for _, u := range list {
			u.settle(err)
		}
		return nil
	}
	for range maxRounds {
		newest, after, err := p.cfg.Store.Allowance(ctx, pattern)
		if err != nil {
			return settle(waiting, err)
		}
		if newest != nil {
			p.allowances.used(newest)
		}
		next, added, replaced := p.withUses(newest, waiting)
		if len(replaced) > 0 {
			// Or removed: in the order in which that happened it is read by who looks. What is
			// read here may have been removed since.
			err := p.allowances.look(ctx)
			if err == nil {
				err = errUsedAgain
			}
			if err := settle(replaced, err); err != nil {
				return err
			}
		}
		if len(added) == 0 {
			return nil
		}
		if err = p.cfg.Store.PutAllowance(ctx, next, after); errors.Is(err, ErrConflict) {
			waiting = added
			continue
		}
		if err != nil {
			// It may be written: the same keys find themselves there with their next try.
			return settle(added, err)
		}
		p.allowances.used(next)
		for _, u := range added {
			u.settle(nil)
		}
		return nil
	}
	return settle(waiting, ErrConflict)
}

// withUses returns the newest entry with the uses that it is good for, and these. It settles those that are
// in it already, and those that it is not good for; replaced are those that were let in by another one.
func (p *Provisioner) withUses(newest *Allowance, waiting []*pendingUse) (next *Allowance, added, replaced []*pendingUse) {
	if newest == nil {
		return nil, nil, waiting
	}
	grown := *newest
	grown.UsedBy = slices.Clone(newest.UsedBy)
	now := p.now()
	for _, u := range waiting {
		switch {
		case u.entry != newest.ID:
			replaced = append(replaced, u)
		case !grown.admits(u.holder(), now):
			u.settle(errUsedAgain)
		case newest.usedBy(u.holder()):
			u.settle(nil)
		default:
			if !grown.usedBy(u.holder()) {
				grown.UsedBy = append(grown.UsedBy, u.AllowanceUse)
			}
			added = append(added, u)
		}
	}
	return &grown, added, replaced
}
