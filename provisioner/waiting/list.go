package waiting

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// Bounds of the notes of who waits; chosen. A node that waits for a person asks
// every 3 to 20 s.
const (
	waiterEvery   = time.Minute // an entry is written again at most so often
	waiterQueue   = 1024        // notes that wait to be written; more are dropped and come again
	waiterTimeout = 15 * time.Second
	waiterSaid    = 10 * time.Minute // that a key still waits is an event so often; its entry has every ask
	maxTries      = 8                // to write an entry that other processes write
	maxSeen       = 100_000          // keys that a process remembers; then it begins anew
)

// Nodes that wait for an operator ask again after minWaitAgain, so that one that was approved comes up while the
// operator watches. A request costs some 400 µs, so a process is asked askRate times a second in all, until the
// interval reaches maxWaitAgain: 10,000 waiting nodes take a fifth of a core.
const (
	minWaitAgain = 3 * time.Second
	MaxAgain     = 20 * time.Second
	askRate      = 100
)

// askAgain returns when one of so many waiting keys is to ask again.
func askAgain(waiting int) time.Duration {
	return min(max(time.Duration(waiting)*time.Second/askRate, minWaitAgain), MaxAgain)
}

// A Holder is a key for one identity.
type Holder struct {
	Key      string
	Identity wire.Identity
}

// A List writes down the keys that wait, off the way of the requests: a store that is
// slow makes no node wait longer. It is safe for concurrent use. What a killed process has not written comes
// again with the node's next try.
type List struct {
	store Store
	log   *slog.Logger
	queue chan waiterNote

	mu   sync.Mutex
	seen map[Holder]*waitSeen // guarded by mu
}

// A waitSeen is what this process remembers of a key that waits.
type waitSeen struct {
	asked  int       // since it was last written
	noted  time.Time // when it was last queued
	listed *Key      // as it was then
	said   time.Time // when it was last an event that it waits
	as     wire.Code // and for what
}

// A waiterNote is an entry to write, or to remove.
type waiterNote struct {
	waiter *Key
	gone   bool
	upTo   trust.Revision // what is removed was written by then; 0: whatever is there
}

// NewList returns a list that is kept in the store. Nothing is written before Run.
func NewList(store Store, log *slog.Logger) *List {
	return &List{store: store, log: log, queue: make(chan waiterNote, waiterQueue), seen: make(map[Holder]*waitSeen)}
}

// Note takes in that a key asked and waits, or is told so: for a revoked name nobody is
// listed. finish completes the entry if it is to be written. It does not block, and returns when to ask again, and whether it
// was an event lately that the key waits for this.
func (ws *List) Note(w *Key, now time.Time, finish func()) (again time.Duration, said bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.seen[w.holder()]
	if s == nil {
		if len(ws.seen) >= maxSeen {
			ws.seen = make(map[Holder]*waitSeen)
		}
		s = &waitSeen{}
		ws.seen[w.holder()] = s
	}
	s.asked++
	if said = s.as == w.Code && now.Sub(s.said) < waiterSaid && !now.Before(s.said); !said {
		s.said, s.as = now, w.Code
	}
	again = askAgain(len(ws.seen))
	if w.Code == wire.CodeIdentityRevoked {
		return again, said
	}
	if s.listed != nil && s.listed.Code == w.Code && s.listed.Token == w.Token && s.listed.Source == w.Source &&
		s.listed.FactsBytes == w.FactsBytes && now.Sub(s.noted) < waiterEvery && !now.Before(s.noted) {
		return again, said
	}
	finish()
	w.Asked, w.Since, w.LastAsked = s.asked, now, now
	select {
	case ws.queue <- waiterNote{waiter: w}:
		s.asked, s.noted, s.listed = 0, now, w
	default: // it asks again
	}
	return again, said
}

// Gone takes in that a key has got in. Unless sure, it is looked at only if
// this process knows it to be listed: another may, and a listing finds it then.
func (ws *List) Gone(h Holder, sure bool) {
	ws.mu.Lock()
	_, known := ws.seen[h]
	ws.mu.Unlock()
	if known || sure {
		ws.remove(h, 0)
	}
}

// remove takes off the list what was on it at the revision upTo, or whatever is
// there if that is 0. What is lost of it, a listing finds again.
func (ws *List) remove(h Holder, upTo trust.Revision) {
	ws.mu.Lock()
	delete(ws.seen, h)
	ws.mu.Unlock()
	select {
	case ws.queue <- waiterNote{waiter: &Key{Identity: h.Identity, KeyHash: h.Key}, gone: true, upTo: upTo}:
	default:
	}
}

// Forget lets the next ask of a key be written at once: it may not be on the list
// any more, whichever provisioner has taken it off. It may be, too, so that Gone
// still looks: who was approved may get in by something else, and spends nothing.
func (ws *List) Forget(h Holder) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s := ws.seen[h]; s != nil {
		*s = waitSeen{}
	}
}

// Run writes until ctx is done. It returns nil.
func (ws *List) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-ws.queue:
			bounded, cancel := context.WithTimeout(ctx, waiterTimeout)
			err := ws.write(bounded, n)
			cancel()
			if err != nil && ctx.Err() == nil {
				ws.Forget(n.waiter.holder())
				level := slog.LevelWarn
				if errors.Is(err, ErrTooMany) {
					level = slog.LevelDebug // somebody makes up keys: the log has its refusals
				}
				ws.log.Log(ctx, level, "node that waits not listed", "node", n.waiter.Identity, "err", err)
			}
		}
	}
}

// write adds to what is on the list, or takes off it.
func (ws *List) write(ctx context.Context, n waiterNote) error {
	if n.gone {
		if n.upTo == 0 {
			_, at, err := ws.store.Waiter(ctx, n.waiter.Identity, n.waiter.KeyHash)
			if err != nil && !errors.Is(err, trust.ErrRecord) || at == 0 {
				return err
			}
			n.upTo = at
		}
		return ws.store.DropWaiter(ctx, n.waiter.Identity, n.waiter.KeyHash, n.upTo)
	}
	for range maxTries {
		w := *n.waiter
		before, after, err := ws.store.Waiter(ctx, w.Identity, w.KeyHash)
		if err != nil && !errors.Is(err, trust.ErrRecord) {
			return err
		}
		if before != nil {
			w.Since = before.Since
			w.Asked += before.Asked
			if before.LastAsked.After(w.LastAsked) {
				w.LastAsked = before.LastAsked
			}
		}
		if err := ws.store.PutWaiter(ctx, &w, after); !errors.Is(err, trust.ErrConflict) {
			return err
		}
	}
	return trust.ErrConflict
}
