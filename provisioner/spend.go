package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// maxAttempt is how long an attempt may live, whatever the edge allows it: the
// edge ends requests after 30 s (natsapi.Config.Timeout). [ReleaseClaim] takes
// claims for dead that are much older.
const maxAttempt = 2 * time.Minute

// errStale says that an attempt has outlived its claim.
var errStale = errors.New("the attempt took too long")

// spend claims a use of a limited token for the attempt. All that can refuse
// the request on its merits is behind it, so what follows is only the record.
// The claim is kept when the attempt goes round again: a second call writes
// nothing.
//
// The process may die behind this line: the use is spent, and the same node
// asking again claims it again at no cost.
func (a *attempt) spend(ctx context.Context) error {
	node := string(a.identity)
	if a.token.Limits.Uses == 0 || !a.reason.changesHands() { // a key that has the identity owes it no token
		return nil
	}
	if a.claim == nil {
		if err := a.checkFrozen(); err != nil {
			return err
		}
		claim := &trust.TokenClaim{Key: a.csr.KeyHash, Identity: a.identity, Attempt: a.id, At: a.now(), Source: events.Cut(a.source.Address, trust.MaxSourceBytes)}
		info := trust.NewTokenInfo(a.token, claim.At)
		info.Uses = a.logs.UsesOf(info.ID, info.Uses)
		switch err := a.uses.Claim(ctx, info, claim); {
		case errors.Is(err, trust.ErrUsedUp):
			return refuse(node, wire.CodeTokenUsedUp, err)
		case err != nil:
			return refuse(node, storeCode(err), err)
		}
		a.claim = claim
	}
	return a.checkClaim()
}

// checkClaim refuses an attempt that has outlived its claim: a process that was
// suspended must not write on one that an operator may have released as dead
// meanwhile.
func (a *attempt) checkClaim() error {
	if a.claim == nil {
		return nil
	}
	// A clock that has gone back does not say how long that was.
	if age := a.now().Sub(a.claim.At); age.Abs() > maxAttempt {
		return refuse(string(a.identity), wire.CodeUnavailable, fmt.Errorf("%w: claimed %v ago, limit %v", errStale, age.Truncate(time.Second), maxAttempt))
	}
	return nil
}

// undo gives back what a refused attempt has taken: its place in the quotas and
// the use of its token. It does so only if it is
// certain that the attempt has written no record: a use that stays spent can be
// released by an operator, a certificate too many can not be undone.
func (a *attempt) undo(ctx context.Context) {
	if a.claim == nil && !a.counted {
		return
	}
	err := a.unwritten(ctx)
	if err == nil && a.counted {
		a.quotas.giveBack(a.token.ID, a.source.Address)
		a.counted = false
	}
	if a.claim == nil {
		return
	}
	if err == nil {
		err = a.uses.Release(ctx, trust.NewTokenInfo(a.token, a.claim.At), &trust.TokenRelease{Key: a.claim.Key, Identity: a.claim.Identity, Attempt: a.claim.Attempt, At: a.now()})
	}
	if err != nil {
		a.cfg.Log.WarnContext(ctx, "token use stays spent", "node", a.identity, "token_id", a.token.ID, "err", err)
	}
}

// unwritten returns nil if it is certain that the attempt wrote no record and
// never will: the record has moved on from the revision that its last write
// was bound to, and nobody's revision since its first try is its own. A write
// whose acknowledgement was lost, and which somebody else has written over, is
// found in the history.
func (a *attempt) unwritten(ctx context.Context) error {
	if a.tries == 0 {
		return nil
	}
	history, complete, err := a.cfg.Store.History(ctx, a.identity)
	switch {
	case err != nil:
		return err
	case len(history) == 0 || history[len(history)-1].Revision <= a.lastTry:
		return errors.New("the record may yet be written")
	case !complete && history[0].Revision > a.firstTry:
		return errors.New("the record's history does not go back to the attempt")
	case slices.ContainsFunc(history, func(r Revised) bool { return r.Record.Attempt == a.id }):
		return errors.New("the record was written")
	}
	return nil
}

// trying notes that the attempt is about to write a record over the newest one,
// unless it has become too old for that.
func (a *attempt) trying() error {
	if err := a.checkClaim(); err != nil {
		return err
	}
	if a.tries == 0 {
		a.firstTry, a.lastTry = a.after, a.after
	}
	a.tries++
	// A read from a member of a cluster that is behind makes a later try one over
	// an older revision, while the write over the newer one is still on its way.
	a.firstTry, a.lastTry = min(a.firstTry, a.after), max(a.lastTry, a.after)
	return nil
}
