package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/span"
	"muster/jwt"
)

// An append takes 1 to 4 ms in a cluster; a cluster without a leader writes again after 4 to 9 s (measured).
const (
	conflictBackoff = 5 * time.Millisecond // more for each conflict
	useBackoff      = 50 * time.Millisecond
	useBackoffMax   = 2 * time.Second
	useTimeout      = 2 * time.Minute // for one batch
)

// maxCounts bounds the remembered counts of idle tokens.
const maxCounts = 4096

// ErrUsedUp means that all uses of a token are taken.
var ErrUsedUp = errors.New("the token has no uses left")

// Uses writes concurrent claims of one token together, since single appends would conflict. It is safe for concurrent
// use.
type Uses struct {
	log  ClaimLog
	slog *slog.Logger

	mu     sync.Mutex
	tokens map[jwt.TokenID]*tokenUses // guarded by mu
}

type tokenUses struct {
	queue   []*useChange // guarded by Uses.mu
	writing bool         // guarded by Uses.mu: a goroutine is writing
	count   UseCount     // owned by the writing goroutine
}

// NewUses returns the uses in a log.
func NewUses(log ClaimLog, l *slog.Logger) *Uses {
	return &Uses{log: log, slog: l, tokens: make(map[jwt.TokenID]*tokenUses)}
}

type useChange struct {
	token   *TokenInfo // limits the claim
	claim   *TokenClaim
	release *TokenRelease

	done      chan error  // capacity 1
	finished  bool        // owned by the writing goroutine
	abandoned atomic.Bool // no request waits for it
}

func (p *useChange) finish(err error) {
	if !p.finished {
		p.finished = true
		p.done <- err
	}
}

// Claim returns nil once the claim is in the token's log, and [ErrUsedUp] if no use is left. After other errors the
// claim may be stored now or later. Repeating it is harmless.
func (u *Uses) Claim(ctx context.Context, token *TokenInfo, c *TokenClaim) error {
	return u.submit(ctx, &useChange{token: token, claim: c, done: make(chan error, 1)})
}

// Release gives back the claim of one attempt. Errors are as for [Uses.Claim].
func (u *Uses) Release(ctx context.Context, token *TokenInfo, r *TokenRelease) error {
	return u.submit(ctx, &useChange{token: token, release: r, done: make(chan error, 1)})
}

func (u *Uses) submit(ctx context.Context, p *useChange) error {
	u.mu.Lock()
	t := u.tokens[p.token.ID]
	if t == nil {
		if len(u.tokens) >= maxCounts {
			u.dropIdle()
		}
		t = &tokenUses{}
		u.tokens[p.token.ID] = t
	}
	t.queue = append(t.queue, p)
	if !t.writing {
		t.writing = true
		go u.run(context.WithoutCancel(ctx), t)
	}
	u.mu.Unlock()
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		p.abandoned.Store(true)
		return fmt.Errorf("claim of token %s: outcome unknown: %w", p.token.ID, ctx.Err())
	}
}

// The caller holds mu.
func (u *Uses) dropIdle() {
	for tid, t := range u.tokens {
		if !t.writing {
			delete(u.tokens, tid)
		}
	}
}

func (u *Uses) run(ctx context.Context, t *tokenUses) {
	for {
		u.mu.Lock()
		var batch []*useChange
		for len(t.queue) > 0 && len(batch) < MaxBatch {
			if p := t.queue[0]; !p.abandoned.Load() {
				batch = append(batch, p)
			}
			t.queue = t.queue[1:]
		}
		if len(batch) == 0 {
			t.queue, t.writing = nil, false
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
		bounded, cancel := context.WithTimeout(ctx, useTimeout)
		err := u.write(bounded, batch[0].token.ID, &t.count, batch)
		cancel()
		for _, p := range batch {
			p.finish(err) // those without an outcome
		}
	}
}

// After a failed append, write reads the end of the log. It counts a conflicting entry, or finds its own, or appends
// the same again under the same condition, so at most one append succeeds. Its error is the outcome of all members
// without one.
func (u *Uses) write(ctx context.Context, tid jwt.TokenID, count *UseCount, batch []*useChange) error {
	fresh := false // count was read after the batch was taken
	conflicts, wait := 0, useBackoff
	for {
		entry, included, rejected := count.plan(batch, fresh)
		switch {
		case len(included) == 0 && (len(rejected) == 0 || fresh):
			for _, p := range rejected {
				p.finish(fmt.Errorf("%w: %d of %d are taken", ErrUsedUp, count.Held, p.token.Uses))
			}
			return nil
		case len(included) == 0: // another process may have released a use
			if err := count.update(ctx, u.log, tid); err != nil {
				return err
			}
			fresh = true
			continue
		}
		before := count.At
		at, err := u.log.AppendClaims(ctx, tid, entry, before)
		if err == nil {
			count.Apply(entry, at)
			for _, p := range included {
				p.finish(nil)
			}
			fresh = true
			continue
		}
		if errors.Is(err, ErrStoreFull) {
			return err // retrying does not help
		}
		if rerr := count.update(ctx, u.log, tid); rerr != nil {
			return rerr
		}
		fresh = true
		var pause time.Duration
		if errors.Is(err, ErrConflict) && count.At > before {
			// The process nearest to the leader wins each race, so the losing one waits.
			conflicts++
			pause = rand.N(min(time.Duration(conflicts)*conflictBackoff, useBackoffMax)) //nolint:gosec // spreads load
		} else {
			u.slog.WarnContext(ctx, "claims not acknowledged", "token_id", tid, "revision", uint64(before), "err", err)
			pause, wait = wait, min(2*wait, useBackoffMax)
		}
		if !span.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// plan returns an entry with all members that fit, and the rejected members. A released use is free from the next entry
// on.
func (b *UseCount) plan(batch []*useChange, fresh bool) (e *ClaimEntry, included, rejected []*useChange) {
	e = &ClaimEntry{Schema: ClaimSchema}
	added := map[holder]bool{}
	for _, p := range batch {
		switch {
		case p.finished:
		case p.release != nil && fresh && !b.has(holder{p.release.Key, p.release.Identity}, p.release.Attempt):
			p.finish(nil)
		case p.release != nil:
			e.Releases = append(e.Releases, *p.release)
			included = append(included, p)
		default:
			h := holder{p.claim.Key, p.claim.Identity}
			if b.has(h, p.claim.Attempt) {
				p.finish(nil)
				continue
			}
			if !b.holds(h) && !added[h] {
				if b.Held+len(added) >= p.token.Uses {
					rejected = append(rejected, p)
					continue
				}
				added[h] = true
			}
			e.Claims = append(e.Claims, *p.claim)
			included = append(included, p)
		}
	}
	if b.At == 0 && len(included) > 0 {
		e.Token = included[0].token
	}
	return e, included, rejected
}
