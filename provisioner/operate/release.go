package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// ReleaseAge is the least age of a claim to release. An attempt ends within two minutes; the rest allows for clocks
// that differ.
const ReleaseAge = 10 * time.Minute

var (
	// ErrNoClaim means that the key or identity holds no use.
	ErrNoClaim = errors.New("no use of the token is held")

	// ErrClaimYoung means that the attempt may still run: try again after [ReleaseAge].
	ErrClaimYoung = errors.New("the claim is too young")

	// ErrClaimEnrolled means that the key has had a certificate: the use is spent.
	ErrClaimEnrolled = errors.New("the key is enrolled")
)

// Release gives back the uses of a token that a key (its hash) or an identity holds, and returns them. Each claim must
// be older than [ReleaseAge], and no revision of the record may mention its key; otherwise none is released.
//
// The error wraps [trust.ErrTokenID], [ErrNoClaim], [ErrClaimYoung] or [ErrClaimEnrolled].
func (t *Tokens) Release(ctx context.Context, tid jwt.TokenID, who string,
	cause trust.Cause) (_ []trust.TokenUse, err error) {
	defer about(&err, "release claim of %.300q on token %.80q", who, string(tid))
	if err := wrong(cause.Check(), trust.CheckTokenID(tid)); err != nil {
		return nil, err
	}
	e := t.event(events.TokenReleased, cause)
	e.Token = tid
	for range maxRounds {
		l, err := trust.ReadUseCount(ctx, t.store, tid)
		if err != nil {
			return nil, err
		}
		held := slices.DeleteFunc(l.Uses, func(u *trust.Use) bool {
			return !u.Held() || u.Key != who && string(u.Identity) != who
		})
		if len(held) == 0 {
			return nil, ErrNoClaim
		}
		now := t.now()
		entry := &trust.ClaimEntry{Schema: trust.ClaimSchema}
		var decided []trust.TokenUse
		for _, u := range held {
			if err := t.releasable(ctx, u, now); err != nil {
				return nil, err
			}
			entry.Releases = append(entry.Releases, trust.TokenRelease{
				Key:      u.Key,
				Identity: u.Identity,
				All:      true,
				At:       now,
				By:       cause.By,
				Why:      cause.Why,
			})
			u.Release(entry.Releases[len(entry.Releases)-1])
			decided = append(decided, u.TokenUse)
		}
		_, err = t.store.AppendClaims(ctx, tid, entry, l.At)
		if errors.Is(err, trust.ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, u := range decided {
			e.Node, e.Source = string(u.Identity), u.Source
			t.report(ctx, "token use released", e, "token_id", tid, "node", u.Identity)
		}
		return decided, nil
	}
	return nil, fmt.Errorf("%w, %d times in a row", trust.ErrConflict, maxRounds)
}

func (t *Tokens) releasable(ctx context.Context, u *trust.Use, now time.Time) error {
	if age := now.Sub(u.Claimed()); age < ReleaseAge {
		return fmt.Errorf("%w: key %s for %q claimed %v ago, want %v: its attempt may still run",
			ErrClaimYoung, u.Key, u.Identity, age.Truncate(time.Second), ReleaseAge)
	}
	newest, revision, err := t.store.Record(ctx, u.Identity)
	if err != nil {
		return err
	}
	if newest == nil {
		return nil
	}
	history, complete, err := t.store.History(ctx, u.Identity)
	if err != nil {
		return err
	}
	if len(history) == 0 || history[len(history)-1].Revision < revision {
		return fmt.Errorf("history of %q ends before revision %d: try again", u.Identity, revision)
	}
	for _, r := range history {
		if slices.Contains(r.Record.Keys(), u.Key) {
			return fmt.Errorf("%w: key %s is on the record of %q at revision %d", ErrClaimEnrolled, u.Key, u.Identity,
				r.Revision)
		}
	}
	if !complete && history[0].Record.UpdatedAt.After(u.At.Add(-ReleaseAge)) {
		return fmt.Errorf("%w, perhaps: the history of %q does not go back to its claim at %s",
			ErrClaimEnrolled, u.Identity, u.At.Format(time.RFC3339))
	}
	return nil
}

// onRecord reports whether a revision of the record mentions the key. Most keys are found in the newest.
func (t *Tokens) onRecord(ctx context.Context, id wire.Identity, key string) (bool, error) {
	newest, _, err := t.store.Record(ctx, id)
	if err != nil || newest == nil {
		return false, err
	}
	if slices.Contains(newest.Keys(), key) {
		return true, nil
	}
	history, _, err := t.store.History(ctx, id)
	return slices.ContainsFunc(history, func(r provisioner.Revised) bool {
		return slices.Contains(r.Record.Keys(), key)
	}), err
}
