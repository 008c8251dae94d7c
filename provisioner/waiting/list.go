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

// A pending node asks every 3 to 20 s.
const (
	writeInterval = time.Minute // between writes of one entry
	queueLength   = 1024        // more are dropped until the next request
	writeTimeout  = 15 * time.Second
	eventInterval = 10 * time.Minute // interval of events about a pending key
	maxTries      = 8                // to write an entry under compare-and-set
	maxKeys       = 100_000          // keys in memory; at the limit all are dropped
)

// A few pending nodes ask often, since an operator may be watching. With more, the interval grows up to MaxRetry:
// 10,000 nodes cost a fifth of a core, at 400 µs a request.
const (
	minRetry = 3 * time.Second
	MaxRetry = 20 * time.Second
	askRate  = 100
)

func retryAfter(waiting int) time.Duration {
	return min(max(time.Duration(waiting)*time.Second/askRate, minRetry), MaxRetry)
}

// A Holder is a key that asks for an identity.
type Holder struct {
	Key      string
	Identity wire.Identity
}

// A List writes pending keys in the background, so that a slow store delays no node. It is safe for concurrent use.
// Entries that a crash loses are written at the next requests.
type List struct {
	store Store
	log   *slog.Logger
	queue chan note

	mu   sync.Mutex
	keys map[Holder]*keyState // guarded by mu
}

type keyState struct {
	asked        int       // requests since the last write
	noted        time.Time // last queued
	listed       *Key      // last entry queued
	reported     time.Time // last event
	reportedCode wire.Code // code of that event
}

// A note is an entry to write or remove.
type note struct {
	waiter *Key
	gone   bool
	upTo   trust.Revision // remove only what was written by then; 0: anything
}

// NewList returns a list. Nothing is written before Run.
func NewList(store Store, log *slog.Logger) *List {
	return &List{
		store: store,
		log:   log,
		queue: make(chan note, queueLength),
		keys:  make(map[Holder]*keyState),
	}
}

// Note counts a request of a pending key. If its entry is due, finish completes it and Note queues it. Revoked names
// are not listed. Note does not block. It returns the retry time, and whether an event about the key was sent lately.
func (ws *List) Note(w *Key, now time.Time, finish func()) (again time.Duration, reported bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s := ws.keys[w.holder()]
	if s == nil {
		if len(ws.keys) >= maxKeys {
			ws.keys = make(map[Holder]*keyState)
		}
		s = &keyState{}
		ws.keys[w.holder()] = s
	}
	s.asked++
	if reported = s.reportedCode == w.Code && now.Sub(s.reported) < eventInterval &&
		!now.Before(s.reported); !reported {
		s.reported, s.reportedCode = now, w.Code
	}
	again = retryAfter(len(ws.keys))
	if w.Code == wire.CodeIdentityRevoked {
		return again, reported
	}
	if s.listed != nil && s.listed.Code == w.Code && s.listed.Token == w.Token && s.listed.Source == w.Source &&
		s.listed.FactsBytes == w.FactsBytes && now.Sub(s.noted) < writeInterval && !now.Before(s.noted) {
		return again, reported
	}
	finish()
	w.Asked, w.Since, w.LastAsked = s.asked, now, now
	select {
	case ws.queue <- note{waiter: w}:
		s.asked, s.noted, s.listed = 0, now, w
	default: // comes again
	}
	return again, reported
}

// Gone removes a key that was admitted; unless sure, only if this process noted it. Readers of the list remove the
// rest.
func (ws *List) Gone(h Holder, sure bool) {
	ws.mu.Lock()
	_, known := ws.keys[h]
	ws.mu.Unlock()
	if known || sure {
		ws.remove(h, 0)
	}
}

// remove removes an entry unless it was written after upTo; 0 means any.
func (ws *List) remove(h Holder, upTo trust.Revision) {
	ws.mu.Lock()
	delete(ws.keys, h)
	ws.mu.Unlock()
	select {
	case ws.queue <- note{waiter: &Key{Identity: h.Identity, KeyHash: h.Key}, gone: true, upTo: upTo}:
	default:
	}
}

// Forget makes a key's next request write at once, since an operator's answer may have removed its entry.
func (ws *List) Forget(h Holder) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s := ws.keys[h]; s != nil {
		*s = keyState{}
	}
}

// Run writes until ctx is done. It returns nil.
func (ws *List) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-ws.queue:
			bounded, cancel := context.WithTimeout(ctx, writeTimeout)
			err := ws.write(bounded, n)
			cancel()
			if err != nil && ctx.Err() == nil {
				ws.Forget(n.waiter.holder())
				level := slog.LevelWarn
				if errors.Is(err, ErrTooMany) {
					level = slog.LevelDebug // keys may be invented; each refusal is in the log
				}
				ws.log.Log(ctx, level, "pending node not listed", "node", n.waiter.Identity, "err", err)
			}
		}
	}
}

func (ws *List) write(ctx context.Context, n note) error {
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
