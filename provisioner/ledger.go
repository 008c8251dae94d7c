package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/jwt"
)

// conflictBackoff is by how much the wait between two tries grows with each conflict: an append takes 1 to 4 ms in a
// cluster of three (measured), so the second try already finds most rivals done.
const conflictBackoff = 5 * time.Millisecond

// errUsedUp says that all uses of a token are taken.
var errUsedUp = errors.New("the token has no uses left")

// A posting is one claim or one release on its way into a token's log.
type posting struct {
	claim   *TokenClaim // or nil
	release *TokenRelease
	token   *TokenInfo // whose uses bound the claim; written if the log is new

	done    chan error // gets the outcome, once; has room for it
	settled bool       // the outcome is known; owned by whoever leads
	gone    bool       // nobody waits for it any more; guarded by ledger.mu
}

func newPosting(token *TokenInfo) *posting { return &posting{token: token, done: make(chan error, 1)} }

// settle tells who waits for the posting how it ended.
func (p *posting) settle(err error) {
	if !p.settled {
		p.settled = true
		p.done <- err
	}
}

// A ledger is this process's view of one token's log, and the place where the
// process's requests gather so that one write carries many of them: the log
// takes one entry after the other, and 64 processes or goroutines that each
// appended their own would mostly lose to each other.
//
// There is no goroutine to it. Of those who wait, whoever comes to lead writes
// for all who are waiting then. Should its context end meanwhile, the rest go
// back to the head of the queue and the next one leads: it reads the tail of
// the log and finds what the first had written.
type ledger struct {
	log    ClaimLog
	tid    jwt.TokenID
	slog   *slog.Logger
	vacant chan struct{} // holds one token while nobody leads
	users  int           // guarded by ledgers.mu: those in post
	used   time.Time     // guarded by ledgers.mu

	mu    sync.Mutex
	queue []*posting // guarded by mu: first come, first served

	book book // owned by whoever leads
}

func newLedger(log ClaimLog, tid jwt.TokenID, l *slog.Logger) *ledger {
	g := &ledger{log: log, tid: tid, slog: l, vacant: make(chan struct{}, 1)}
	g.vacant <- struct{}{}
	return g
}

// post returns nil once the posting is in the log, and errUsedUp if it was not
// written because no use is left. After any other error it may be in the log
// or may yet come. Posting the same again is harmless: what is found in the log
// is not written twice, and at most one of two writes on one revision is made.
func (l *ledger) post(ctx context.Context, p *posting) error {
	l.mu.Lock()
	l.queue = append(l.queue, p)
	l.mu.Unlock()
	for {
		// Both may be ready below, and the choice between them is random.
		select {
		case err := <-p.done:
			return err
		default:
		}
		if err := ctx.Err(); err != nil {
			l.withdraw(p)
			return fmt.Errorf("claim of token %s: outcome unknown: %w", l.tid, err)
		}
		select {
		case err := <-p.done:
			return err
		case <-l.vacant:
			l.lead(ctx)
		case <-ctx.Done():
		}
	}
}

// withdraw says that nobody waits for p any more. If a leader has it in hand it
// may still be written.
func (l *ledger) withdraw(p *posting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.gone = true
	for i, q := range l.queue {
		if q == p {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			return
		}
	}
}

// lead writes one batch of those who wait and makes way for the next. What could not
// be settled goes back to where it was in the queue.
func (l *ledger) lead(ctx context.Context) {
	l.mu.Lock()
	n := min(len(l.queue), maxBatch)
	batch := append([]*posting(nil), l.queue[:n]...)
	l.queue = append([]*posting(nil), l.queue[n:]...)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		var back []*posting
		for _, p := range batch {
			if !p.settled && !p.gone {
				back = append(back, p)
			}
		}
		l.queue = append(back, l.queue...)
		l.mu.Unlock()
		l.vacant <- struct{}{}
	}()
	l.write(ctx, batch)
}

// write works on a batch until the outcome of each is known or ctx is done.
//
// Whatever goes wrong with a write, the cure is to read the tail. A conflict:
// somebody else's entry is there, and is counted. No acknowledgement: ours is
// there and its postings are found in it, or it is not, and the same is written
// again under the same condition; should the first write arrive late, only one
// of the two is made, and the other meets a conflict and finds it. Only where
// the store says that it could not write, it is not asked what it shows.
func (l *ledger) write(ctx context.Context, batch []*posting) {
	fresh := false // the book was complete at some moment since the batch was taken
	conflicts := 0 // how often another process's entry came first
	wait := publishBackoff
	var unanswered error // of the write before, whose entry is not in the log
	for {
		entry, in, over := l.plan(batch, fresh)
		switch {
		case len(in) == 0 && len(over) == 0:
			return
		case len(in) == 0 && fresh:
			for _, p := range over {
				p.settle(fmt.Errorf("%w: %d of %d are taken", errUsedUp, len(l.book.held), p.token.Uses))
			}
			return
		case len(in) == 0:
			// Another process may have released one.
			if !l.read(ctx, batch) {
				return
			}
			fresh = true
			continue
		}
		if unanswered != nil {
			l.slog.WarnContext(ctx, "claims not acknowledged", "token_id", l.tid, "revision", uint64(l.book.at), "err", unanswered)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
				wait = min(2*wait, publishBackoffMax)
			}
			unanswered = nil // said
		}
		before := l.book.at
		at, err := l.log.AppendClaims(ctx, l.tid, entry, before)
		switch {
		case err == nil:
			l.book.apply(entry, at)
			for _, p := range in {
				p.settle(nil)
			}
		case errors.Is(err, trust.ErrStoreFull):
			// It was not written, whatever there is to be read, and trying for as
			// long as everybody's time lasts does not help.
			for _, p := range batch {
				p.settle(err)
			}
			return
		case !l.read(ctx, batch):
			return
		case !errors.Is(err, trust.ErrConflict):
			unanswered = err
		case l.book.at > before:
			// The nearest process wins a race for the log each time. So those that lost make way for one another.
			conflicts++
			select {
			case <-ctx.Done():
				return
			case <-time.After(rand.N(min(time.Duration(conflicts)*conflictBackoff, publishBackoffMax))): //nolint:gosec // spreads load
			}
			if !l.read(ctx, batch) {
				return
			}
		default:
			unanswered = err // a replica that is behind was read
		}
		fresh = true
	}
}

// read brings the book up to date. If the log cannot be read, that is the
// outcome of all in the batch: they are told at once, since a store that does
// not answer would otherwise hold up every worker. If only the leader's time is
// up, the batch stays as it is for the next.
func (l *ledger) read(ctx context.Context, batch []*posting) bool {
	err := l.log.Claims(ctx, l.tid, l.book.at, func(e *ClaimEntry, at trust.Revision) error {
		l.book.apply(e, at)
		return nil
	})
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		for _, p := range batch {
			p.settle(err)
		}
	}
	return false
}

// plan returns the entry that carries all of the batch for which there is room,
// who is in it, and who is not. What has been done already is settled on the
// way: a claim that is in the book, and a release of what is not in a fresh one.
// What the entry's releases give back counts from the next entry on.
func (l *ledger) plan(batch []*posting, fresh bool) (e *ClaimEntry, in, over []*posting) {
	e = &ClaimEntry{Schema: ClaimSchema}
	added := map[holder]bool{}
	for _, p := range batch {
		switch {
		case p.settled:
		case p.release != nil && fresh && !l.book.has(p.release.Key, p.release.Identity, p.release.Attempt):
			p.settle(nil)
		case p.release != nil:
			e.Releases = append(e.Releases, *p.release)
			in = append(in, p)
		case l.book.has(p.claim.Key, p.claim.Identity, p.claim.Attempt):
			p.settle(nil)
		default:
			h := holder{p.claim.Key, p.claim.Identity}
			if l.book.held[h] == nil && !added[h] {
				if len(l.book.held)+len(added) >= p.token.Uses {
					over = append(over, p)
					continue
				}
				added[h] = true
			}
			e.Claims = append(e.Claims, *p.claim)
			in = append(in, p)
		}
	}
	if l.book.at == 0 && len(in) > 0 {
		e.Token = in[0].token
	}
	return e, in, over
}
