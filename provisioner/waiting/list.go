package waiting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/trust"
)

// GoneAfter is the time without a request after which a key no longer counts as waiting. If its share of the list is
// full, it gives way to other keys.
const GoneAfter = time.Hour

// A pending node asks every 3 to 20 s.
const (
	minWrite     = 1500 * time.Millisecond // between writes of one entry
	maxWrite     = time.Minute
	writeRate    = 20   // entries written again per second, of all keys
	queueLength  = 1024 // removals and concealed entries; more are dropped until the next request
	writeTimeout = 5 * time.Second
	readInterval = 15 * time.Second // between readings of the entries of other provisioners
	readTimeout  = 30 * time.Second
	maxTries     = 8 // to write an entry under compare-and-set

	eventInterval = 10 * time.Minute // of events about a pending key
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

// A List keeps the pending keys within their shares. Each provisioner reads the entries that the rest has written every
// readInterval; until then, several provisioners together can exceed a share. It is safe for concurrent use.
type List struct {
	store Store
	log   *slog.Logger
	now   func() time.Time
	queue chan note

	mu      sync.Mutex
	keys    map[Holder]*keyState // guarded by mu
	sources map[netip.Prefix]int // guarded by mu: number of keys
	tokens  map[jwt.TokenID]int  // guarded by mu: number of keys
	full    error                // guarded by mu: why the last refused key got no place
	fullAt  time.Time            // guarded by mu: of the last such request
}

// A keyState is an entry, or one that is being written.
type keyState struct {
	*Key              // without facts, names and reasons; with its first source and token
	stored  wire.Code // in the store; empty if the entry is not known to be there
	written time.Time // last write of this process
	unsaved int       // requests since then

	reported     time.Time // last event
	reportedCode wire.Code // code of that event
}

// A note is an entry to write or remove.
type note struct {
	waiter *Key
	state  *keyState      // nil: remove the entry
	upTo   trust.Revision // remove only what was written by then; 0: anything
}

// NewList returns an empty list. Call [List.Read] before [List.Note].
func NewList(store Store, log *slog.Logger, now func() time.Time) *List {
	return &List{
		store:   store,
		log:     log,
		now:     now,
		queue:   make(chan note, queueLength),
		keys:    make(map[Holder]*keyState),
		sources: make(map[netip.Prefix]int),
		tokens:  make(map[jwt.TokenID]int),
	}
}

// Note counts a request of a pending key. If its entry is due, finish completes it, and Note returns after the store
// has acknowledged it; if later, it is written in the background, perhaps never. The error is [ErrTooMany] if a share
// is used up. Note returns the retry time, and whether an event about the key was sent lately.
func (ws *List) Note(ctx context.Context, w *Key, later bool, finish func()) (again time.Duration, reported bool,
	err error) {
	now := ws.now()
	asked := now.UTC().Truncate(time.Second)
	ws.mu.Lock()
	again = retryAfter(len(ws.keys))
	s, err := ws.enter(w)
	if err != nil {
		ws.full, ws.fullAt = err, now
		ws.mu.Unlock()
		return MaxRetry, false, err
	}
	reported = s.wasReported(w.Code, now)
	due := s.isDue(w, len(ws.keys), now)
	s.unsaved++
	s.Code, s.LastAsked = w.Code, asked
	if due {
		w.Asked, s.unsaved = s.unsaved, 0
		s.written = now
	}
	ws.mu.Unlock()
	if !due {
		return again, reported, nil
	}
	finish()
	w.Since, w.LastAsked = asked, asked
	n := note{waiter: w, state: s}
	if later {
		select {
		case ws.queue <- n:
		default:
			ws.finish(n, errQueue)
		}
		return again, reported, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return again, reported, ws.write(ctx, n)
}

var errQueue = errors.New("too many entries at once")

func (s *keyState) wasReported(code wire.Code, now time.Time) bool {
	if s.reportedCode == code && now.Sub(s.reported).Abs() < eventInterval {
		return true
	}
	s.reported, s.reportedCode = now, code
	return false
}

// isDue reports whether to write the entry of a key that asks as w, with that many keys on the list.
func (s *keyState) isDue(w *Key, keys int, now time.Time) bool {
	interval := min(max(time.Duration(keys)*time.Second/writeRate, minWrite), maxWrite)
	if s.stored != w.Code || s.FactsBytes != w.FactsBytes {
		interval = minWrite
	}
	return s.stored == "" || now.Sub(s.written).Abs() >= interval
}

// enter returns the state of a key. A new key takes a place in the shares of its address and its token, and keeps it.
// The caller holds mu.
func (ws *List) enter(w *Key) (*keyState, error) {
	if s := ws.keys[w.Holder()]; s != nil {
		return s, nil
	}
	if err := ws.room(w); err != nil {
		return nil, err
	}
	return ws.add(w.brief()), nil
}

// The caller holds mu.
func (ws *List) add(w *Key) *keyState {
	s := &keyState{Key: w}
	ws.keys[w.Holder()] = s
	ws.count(w, 1)
	return s
}

// Gone removes a key that was admitted; unless sure, only if this process knows it. Readers of the list remove the
// rest.
func (ws *List) Gone(h Holder, sure bool) {
	ws.mu.Lock()
	known := ws.keys[h] != nil
	ws.leave(h)
	ws.mu.Unlock()
	if known || sure {
		ws.remove(h, 0)
	}
}

// Forget makes a key's next request write at once, since an operator's answer may have removed its entry.
func (ws *List) Forget(h Holder) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.leave(h)
}

// Update adds to an entry of the store what this process knows since the last write.
func (ws *List) Update(w *Key) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s := ws.keys[w.Holder()]; s != nil {
		w.Asked += s.unsaved
		if !s.LastAsked.Before(w.LastAsked) { // else another provisioner knows more
			w.Code, w.LastAsked = s.Code, s.LastAsked
		}
	}
	w.Gone = ws.now().Sub(w.LastAsked) >= GoneAfter
}

// Full returns why a node that asked in the last minute is not on the list, or nil.
func (ws *List) Full() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.now().Sub(ws.fullAt).Abs() >= time.Minute {
		return nil
	}
	return ws.full
}

// Len returns the number of keys on the list.
func (ws *List) Len() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.keys)
}

// Read takes over the entries in the store, and gives the places of removed ones back. Gone keys leave crowded shares.
func (ws *List) Read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := ws.now()
	stored := make(map[Holder]*Key)
	revisions := make(map[Holder]trust.Revision)
	if err := ws.store.Waiters(ctx, "", func(w *Key, at trust.Revision) error {
		stored[w.Holder()], revisions[w.Holder()] = w.brief(), at
		return nil
	}); err != nil {
		return err
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for h, s := range ws.keys {
		if stored[h] == nil && s.written.Before(began) {
			ws.leave(h)
		}
	}
	for h, w := range stored {
		s := ws.keys[h]
		if s == nil {
			s = ws.add(w) // if it was removed meanwhile, it leaves at the next reading
		}
		s.stored, s.LastAsked = w.Code, later(s.LastAsked, w.LastAsked)
	}
	for h, s := range ws.keys {
		if began.Sub(s.LastAsked) >= GoneAfter && ws.crowded(s.Key) {
			ws.leave(h)
			ws.remove(h, revisions[h])
		}
	}
	return nil
}

// remove queues the removal of an entry, unless it was written after upTo; 0 means any.
func (ws *List) remove(h Holder, upTo trust.Revision) {
	select {
	case ws.queue <- note{waiter: &Key{Identity: h.Identity, KeyHash: h.Key}, upTo: upTo}:
	default: // the next reader of the list removes it
	}
}

// Run writes and reads until ctx is done. It returns nil.
func (ws *List) Run(ctx context.Context) error {
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := ws.Read(ctx); err != nil && ctx.Err() == nil {
				ws.log.WarnContext(ctx, "pending list not read", "err", err)
			}
		case n := <-ws.queue:
			bounded, cancel := context.WithTimeout(ctx, writeTimeout)
			err := ws.carryOut(bounded, n)
			cancel()
			if err != nil && ctx.Err() == nil {
				ws.log.WarnContext(ctx, "pending node not listed", "node", n.waiter.Identity, "err", err)
			}
		}
	}
}

func (ws *List) carryOut(ctx context.Context, n note) error {
	if n.state != nil {
		return ws.write(ctx, n)
	}
	if n.upTo == 0 {
		_, at, err := ws.store.Waiter(ctx, n.waiter.Identity, n.waiter.KeyHash)
		if err != nil && !errors.Is(err, trust.ErrRecord) || at == 0 {
			return err
		}
		n.upTo = at
	}
	return ws.store.DropWaiter(ctx, n.waiter.Identity, n.waiter.KeyHash, n.upTo)
}

// write returns once the entry is in the store. After a crash the node asks again.
func (ws *List) write(ctx context.Context, n note) error {
	err := trust.ErrConflict
	for try := 0; try < maxTries && errors.Is(err, trust.ErrConflict); try++ {
		err = ws.tryWrite(ctx, *n.waiter)
	}
	ws.finish(n, err)
	return err
}

func (ws *List) tryWrite(ctx context.Context, w Key) error {
	before, after, err := ws.store.Waiter(ctx, w.Identity, w.KeyHash)
	if err != nil && !errors.Is(err, trust.ErrRecord) {
		return err
	}
	if before != nil {
		w.Since, w.Asked = before.Since, w.Asked+before.Asked
		w.LastAsked = later(w.LastAsked, before.LastAsked)
	}
	return ws.store.PutWaiter(ctx, &w, after)
}

// finish ends a write. A key that is not in the store gives its place back.
func (ws *List) finish(n note, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s, h := n.state, n.waiter.Holder()
	switch {
	case err == nil:
		s.stored, s.FactsBytes = n.waiter.Code, n.waiter.FactsBytes
	case s.stored == "" && ws.keys[h] == s:
		ws.leave(h)
	default:
		s.unsaved += n.waiter.Asked
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Shares of the list. Token holders can invent names, so no address and no token can take all of it.
const (
	MaxPerSource = 64     // keys of one address, or of one /64 in IPv6
	MaxPerToken  = 1024   // keys with one token, and keys without one
	MaxKeys      = 16_384 // in all
)

// room returns an error if a share of the key is used up. The caller holds mu.
func (ws *List) room(w *Key) error {
	source := limit.Source(w.Source)
	switch {
	case ws.sources[source] >= MaxPerSource:
		name := limit.SourceName(source, w.Source)
		return fmt.Errorf("%w: %d keys from %s, the limit: `muster node forget --address %s` makes room", ErrTooMany,
			MaxPerSource, name, name)
	case ws.tokens[w.Token] >= MaxPerToken && w.Token == "":
		return fmt.Errorf("%w: %d keys without a token, the limit: `muster node pending --by-source` shows from where",
			ErrTooMany, MaxPerToken)
	case ws.tokens[w.Token] >= MaxPerToken:
		return fmt.Errorf("%w: %d keys with one token, the limit: `muster node forget --token-id %s` makes room",
			ErrTooMany, MaxPerToken, w.Token)
	case len(ws.keys) >= MaxKeys:
		return fmt.Errorf("%w: %d keys, the limit: `muster node pending --by-source` shows from where", ErrTooMany,
			MaxKeys)
	}
	return nil
}

// crowded reports whether a share of the key is used to three quarters. The caller holds mu.
func (ws *List) crowded(w *Key) bool {
	return ws.sources[limit.Source(w.Source)] >= MaxPerSource*3/4 || ws.tokens[w.Token] >= MaxPerToken*3/4 ||
		len(ws.keys) >= MaxKeys*3/4
}

// The caller holds mu.
func (ws *List) count(w *Key, by int) {
	source := limit.Source(w.Source)
	if ws.sources[source] += by; ws.sources[source] == 0 {
		delete(ws.sources, source)
	}
	if ws.tokens[w.Token] += by; ws.tokens[w.Token] == 0 {
		delete(ws.tokens, w.Token)
	}
}

// leave frees the place of a key. The caller holds mu.
func (ws *List) leave(h Holder) {
	if s := ws.keys[h]; s != nil {
		ws.count(s.Key, -1)
		delete(ws.keys, h)
	}
}
