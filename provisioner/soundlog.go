package provisioner

import (
	"cmp"
	"context"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
)

// A soundLog is a log of claims of which nothing is believed that may not be on
// disk. A broker also shows what it could not sync, until it restarts: a claim
// that is counted then, or journaled, is one that never was, and its revision
// another's later.
type soundLog struct {
	ClaimLog
	alarms *Alarms
	broken func() error // see Config.StoreBroken
}

// Claims implements [ClaimLog]. What was read while the store failed is not
// handed on.
func (l *soundLog) Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error {
	well, done := l.alarms.Until(ctx, wire.CodeStoreUnavailable)
	defer done()
	type entry struct {
		entry *ClaimEntry
		at    Revision
	}
	var read []entry
	handOn := func() error {
		switch broken := l.broken(); {
		case broken != nil:
			return broken
		case well.Err() != nil:
			return context.Cause(well)
		}
		for _, e := range read {
			if err := each(e.entry, e.at); err != nil {
				return err
			}
		}
		read = read[:0]
		return nil
	}
	err := l.ClaimLog.Claims(well, tid, after, func(e *ClaimEntry, at Revision) error {
		if read = append(read, entry{e, at}); len(read) == claimsAtOnce {
			return handOn()
		}
		return nil
	})
	if err == nil || l.broken() != nil || well.Err() != nil {
		err = cmp.Or(handOn(), err)
	}
	if err != nil {
		return fmt.Errorf("claims of token %s: %w", tid, err)
	}
	return nil
}

// AppendClaims implements [ClaimLog]. It does not wait for a store that is found
// to be away.
func (l *soundLog) AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error) {
	well, done := l.alarms.Until(ctx, wire.CodeStoreUnavailable)
	defer done()
	return l.ClaimLog.AppendClaims(well, tid, e, after)
}
