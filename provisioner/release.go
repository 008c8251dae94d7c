package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// ReleaseAge is how old a claim must be before an operator may release it. No
// attempt lives longer than two minutes, so the one that made the claim is
// dead; the rest is for clocks of provisioners that differ. It is as old as its date says
// by a clock that is not in doubt, or as long as this process has known it: see [claimAges].
const ReleaseAge = 10 * time.Minute

// Reasons why a claim is not released. Each is wrapped with the details.
var (
	// ErrNoClaim means that nobody of that name holds a use of the token:
	// there is nothing to do.
	ErrNoClaim = errors.New("no use of the token is held")

	// ErrClaimYoung means that the claim's attempt may still be alive: try
	// again after [ReleaseAge], at the same provisioner if a clock was ahead.
	ErrClaimYoung = errors.New("the claim is too young")

	// ErrClaimEnrolled means that the key has had a certificate: the use is
	// spent for good.
	ErrClaimEnrolled = errors.New("the key is enrolled")
)

// ReleaseClaim gives back the uses of a token that who holds, the hash of a key
// or an identity, and that have not led to a certificate: the machine died
// between its claim and its record. It returns what it released.
//
// It releases nothing that may yet become a certificate, or has been one: a
// claim must be older than [ReleaseAge], and its key on no revision of its
// identity's record. It is written under the revision of the log that this was
// decided on, so that no new claim of the same key can slip in between. If one
// of several does not qualify, none is released.
//
// The error wraps [trust.ErrTokenID], [ErrNoClaim], [ErrClaimYoung] or
// [ErrClaimEnrolled]; after any other one the release may have been written.
// Repeating it is harmless: what is released is not held.
func (p *Provisioner) ReleaseClaim(ctx context.Context, tid jwt.TokenID, who string, cause trust.Cause) ([]TokenUse, error) {
	if err := wrong(cause.Check(), trust.CheckTokenID(tid)); err != nil {
		return nil, fmt.Errorf("release claim: %w", err)
	}
	released, err := p.release(ctx, tid, who, cause)
	if err != nil {
		return nil, fmt.Errorf("release claim of %.300q on token %s: %w", who, tid, err)
	}
	return released, nil
}

// tellReleased emits the events of uses that the log has as given back.
func (p *Provisioner) tellReleased(ctx context.Context, tid jwt.TokenID, released []TokenUse, at time.Time, cause trust.Cause) {
	for _, u := range released {
		p.cfg.Emit(events.Event{Type: events.TokenReleased, Time: at, Node: string(u.Identity), Token: tid, Source: u.Source, By: cause.By, Why: cause.Why})
		p.cfg.Log.InfoContext(ctx, "token use released", "token_id", tid, "node", u.Identity, "by", cause.By, "why", cause.Why)
	}
}

// release decides, writes and tells, again and again until nothing came in between.
// It reads the log itself and not through the ledger, which keeps no times.
func (p *Provisioner) release(ctx context.Context, tid jwt.TokenID, who string, cause trust.Cause) ([]TokenUse, error) {
	var decided []TokenUse
	unsure := false // decided may have been written
	told := p.moment()
	for range maxRounds {
		l, err := readUses(ctx, p.cfg.Store, tid)
		if err != nil {
			return nil, err
		}
		held := slices.DeleteFunc(l.uses, func(u *use) bool { return !u.held() || u.Key != who && string(u.Identity) != who })
		if len(held) == 0 {
			if unsure {
				p.tellReleased(ctx, tid, decided, told, cause)
				return decided, nil // written by a round before, whose acknowledgement was lost
			}
			return nil, ErrNoClaim
		}
		now := p.now()
		e := &ClaimEntry{Schema: ClaimSchema}
		decided = nil
		for _, u := range held {
			if err := p.releasable(ctx, u, now); err != nil {
				return nil, err
			}
			e.Releases = append(e.Releases, TokenRelease{Key: u.Key, Identity: u.Identity, All: true, At: now, By: cause.By, Why: cause.Why})
			u.give(e.Releases[len(e.Releases)-1])
			decided = append(decided, u.TokenUse)
		}
		_, err = p.cfg.Store.AppendClaims(ctx, tid, e, l.at)
		if err == nil {
			p.tellReleased(ctx, tid, decided, told, cause)
			return decided, nil
		}
		if ctx.Err() != nil || errors.Is(err, trust.ErrStoreFull) {
			return nil, err
		}
		// Conflict or not acknowledged: look again.
		unsure = unsure || !errors.Is(err, trust.ErrConflict)
	}
	return nil, fmt.Errorf("%w, %d times in a row", trust.ErrConflict, maxRounds)
}

// releasable returns why a use cannot be released, or nil.
func (p *Provisioner) releasable(ctx context.Context, u *use, now time.Time) error {
	if err := p.youngClaim(u, now); err != nil {
		return err
	}
	newest, revision, err := p.cfg.Store.Record(ctx, u.Identity)
	if err != nil {
		return err
	}
	if newest == nil {
		return nil
	}
	history, complete, err := p.cfg.Store.History(ctx, u.Identity)
	if err != nil {
		return err
	}
	if len(history) == 0 || history[len(history)-1].Revision < revision {
		return fmt.Errorf("history of %q ends before revision %d: try again", u.Identity, revision)
	}
	for _, r := range history {
		if r.Record.mentions(u.Key) {
			return fmt.Errorf("%w: key %s is on the record of %q at revision %d", ErrClaimEnrolled, u.Key, u.Identity, r.Revision)
		}
	}
	if !complete && (toCome(u.At, now) || history[0].Record.UpdatedAt.After(u.At.Add(-ReleaseAge))) {
		return fmt.Errorf("%w, perhaps: the history of %q does not go back to its claim at %s", ErrClaimEnrolled, u.Identity, u.At.Format(time.RFC3339))
	}
	return nil
}

// youngClaim returns why one of the claims of a use may be of an attempt that is still alive, or
// nil.
func (p *Provisioner) youngClaim(u *use, now time.Time) error {
	var young error
	for _, c := range u.claims { // all of them, so that all are known from now on
		known := p.claimAges.of(c.attempt, p.cfg.Now())
		age := max(p.cfg.Clock.undoubted(now).Sub(c.at), known)
		switch {
		case age >= ReleaseAge:
		case toCome(c.at, now):
			young = fmt.Errorf("%w: key %s for %q claimed at %s, which is to come: known here for %v, want %v: its attempt may still be under way",
				ErrClaimYoung, u.Key, u.Identity, c.at.Format(time.RFC3339), known.Truncate(time.Second), ReleaseAge)
		default:
			young = fmt.Errorf("%w: key %s for %q claimed %v ago, want %v: its attempt may still be under way", ErrClaimYoung, u.Key, u.Identity, max(age, 0).Truncate(time.Second), ReleaseAge)
		}
	}
	return young
}

// claimAges is since when this process knows claims that somebody would release. What a
// claim says of its time is worth nothing where the clock of who wrote it was ahead: it is
// to come for as long, and nobody else says when it was written. That it was no later than
// when somebody has read it is certain, whatever clocks say. So who asks once for such a
// use, and once more after [ReleaseAge], has it released; a process that was restarted
// meanwhile begins anew. The zero value is ready, and safe for concurrent use.
type claimAges struct {
	mu    sync.Mutex
	known map[string]time.Time // guarded by mu, by attempt; with the monotonic clock
}

// of returns how long the claim of the attempt has been known at now: nothing at the first
// call. No clock that is set moves it.
func (a *claimAges) of(attempt string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.known[attempt]
	if !ok {
		if a.known == nil || len(a.known) >= maxSeen {
			a.known = make(map[string]time.Time)
		}
		a.known[attempt], since = now, now
	}
	return now.Sub(since)
}

// mentions reports whether the key has, or has had, a certificate of the record.
func (r *Record) mentions(key string) bool {
	return slices.Contains(r.Lineage, key) || r.Current != nil && r.Current.KeyHash == key || r.Next != nil && r.Next.KeyHash == key
}

// onRecord reports whether the key is on a revision of the identity's record.
// The newest is looked at first, since nearly all are found there.
func (p *Provisioner) onRecord(ctx context.Context, id wire.Identity, key string) (bool, error) {
	newest, _, err := p.cfg.Store.Record(ctx, id)
	if err != nil || newest == nil {
		return false, err
	}
	if newest.mentions(key) {
		return true, nil
	}
	history, _, err := p.cfg.Store.History(ctx, id)
	return slices.ContainsFunc(history, func(r Revised) bool { return r.Record.mentions(key) }), err
}
