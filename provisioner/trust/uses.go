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

	"muster/jwt"
)

// Times of writing to a token's log; chosen. An append takes 1 to 4 ms in a cluster of three (measured), so the second
// try after a conflict already finds most rivals done. A broker that lost its leader takes 4 to 9 s to write again.
const (
	conflictBackoff = 5 * time.Millisecond // by how much the wait between two tries grows with each conflict
	useBackoff      = 50 * time.Millisecond
	useBackoffMax   = 2 * time.Second
	useTimeout      = 2 * time.Minute // for one batch
)

// maxBooks is how many tokens' counts are remembered; then those of which nothing is being written are read anew. Chosen.
const maxCounts = 4096

// ErrUsedUp means that all uses of a token are taken.
var ErrUsedUp = errors.New("the token has no uses left")

// Uses are those of limited tokens. Claims of one token that come at the same time are written together, since the log
// takes one entry after the other: 64 requests that each appended their own would mostly lose to each other. It is safe
// for concurrent use.
type Uses struct {
	log  ClaimLog
	slog *slog.Logger

	mu     sync.Mutex
	tokens map[jwt.TokenID]*tokenUses // guarded by mu
}

// tokenUses are the uses of one token.
type tokenUses struct {
	queue   []*useChange // guarded by Uses.mu: first come, first served
	writing bool         // guarded by Uses.mu: a goroutine writes what is in the queue
	count   UseCount     // of whichever goroutine writes
}

// NewUses returns the uses that are in a log.
func NewUses(log ClaimLog, l *slog.Logger) *Uses {
	return &Uses{log: log, slog: l, tokens: make(map[jwt.TokenID]*tokenUses)}
}

// A posting is one claim or one release on its way into a token's log.
type useChange struct {
	token   *TokenInfo // whose uses bound the claim; written if the log is new
	claim   *TokenClaim
	release *TokenRelease

	done      chan error  // gets the outcome, once; has room for it
	finished  bool        // of whichever goroutine writes: the outcome is known
	abandoned atomic.Bool // no request waits for it any more
}

// settle tells the request how its posting ended.
func (p *useChange) finish(err error) {
	if !p.finished {
		p.finished = true
		p.done <- err
	}
}

// Claim returns nil once the claim is in the log of the token, and [ErrUsedUp] if it was not written because no use is
// left. After any other error it may be in the log or may yet come. Claiming the same again is harmless: what is found
// in the log is not written twice, and at most one of two writes on one revision is made.
func (u *Uses) Claim(ctx context.Context, token *TokenInfo, c *TokenClaim) error {
	return u.submit(ctx, &useChange{token: token, claim: c, done: make(chan error, 1)})
}

// Release is Claim for what gives the claim of one attempt back.
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
		go u.run(context.WithoutCancel(ctx), t) // for all that come meanwhile, whichever of them is still there
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

// forget drops the counts of tokens of which nothing is being written. The caller holds mu.
func (u *Uses) dropIdle() {
	for tid, t := range u.tokens {
		if !t.writing {
			delete(u.tokens, tid)
		}
	}
}

// run writes until the queue is empty.
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
			p.finish(err) // those that are not settled
		}
	}
}

// write works on a batch until the outcome of each is known; of those that are not settled when it returns it is the
// error.
//
// Whatever goes wrong with a write, the cure is to read the tail. A conflict:
// another process's entry is there, and is counted. No acknowledgement: ours is
// there and its postings are found in it, or it is not, and the same is written
// again under the same condition; should the first write arrive late, only one
// of the two is made, and the other meets a conflict and finds it. Only where
// the store says that it could not write, it is not asked what it shows.
func (u *Uses) write(ctx context.Context, tid jwt.TokenID, count *UseCount, batch []*useChange) error {
	fresh := false // the book was complete at some moment since the batch was taken
	conflicts, wait := 0, useBackoff
	for {
		entry, included, rejected := count.plan(batch, fresh)
		switch {
		case len(included) == 0 && (len(rejected) == 0 || fresh):
			for _, p := range rejected {
				p.finish(fmt.Errorf("%w: %d of %d are taken", ErrUsedUp, count.Held, p.token.Uses))
			}
			return nil
		case len(included) == 0: // another process may have released one
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
			return err // it was not written, and trying for as long as there is time does not help
		}
		if rerr := count.update(ctx, u.log, tid); rerr != nil {
			return rerr
		}
		fresh = true
		var pause time.Duration
		if errors.Is(err, ErrConflict) && count.At > before {
			// The nearest process wins a race for the log each time. So those that lost make way for one another.
			conflicts++
			pause = rand.N(min(time.Duration(conflicts)*conflictBackoff, useBackoffMax)) //nolint:gosec // spreads load
		} else {
			u.slog.WarnContext(ctx, "claims not acknowledged", "token_id", tid, "revision", uint64(before), "err", err)
			pause, wait = wait, min(2*wait, useBackoffMax)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// plan returns the entry that carries all of the batch for which there is room,
// which postings are in it, and which are not. What has been done already is settled on the
// way: a claim that is in the book, and a release of what is not in a fresh one.
// What the entry's releases give back counts from the next entry on.
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
