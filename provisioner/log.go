package provisioner

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
)

// MaxAge is how old the views of a process may be. Beyond it no request is decided and no
// connection admitted.
const MaxAge = 2 * time.Second

// An Entry is the newest of one key of a [Log].
type Entry[V any] struct {
	Value    V
	Revision Revision
	At       time.Time // when the store took it, by the store's clock

	// Unread is why the entry cannot be decoded; Value is the zero value then. It lets in
	// nothing for its key until a newer entry replaces it.
	Unread error
}

// A Log is what this process knows of one kind of entries: the newest of each key, in memory.
// It is safe for concurrent use. [Logs.Fresh] says how old it is.
type Log[V any] interface {
	// Get returns the newest entry of a key.
	Get(key string) (Entry[V], bool)

	// All returns the newest entry of each key, in no order.
	All() iter.Seq2[string, Entry[V]]

	// Put writes an entry, provided that the newest of its key is still expected (0: there is
	// none). When it returns, Get sees the entry, or the one that came first, which is
	// [ErrConflict]. [ErrStoreFull] means that it was not written; after any
	// other error it may be, or may yet be. Writing it again is harmless: at most one write
	// with the same expected revision is made.
	Put(ctx context.Context, key string, v V, expected Revision) (Revision, error)

	// Watch calls applied for each entry that Get returns, and then for each that replaces one,
	// one call at a time. An own write may come before an earlier write of another process.
	// applied must not call Put, and must not block.
	Watch(applied func(key string, e Entry[V]))
}

// Logs are the kinds of entries that provisioners share.
type Logs struct {
	Pauses     Pauses              // by [Pause.LogKey]
	Answers    Answers             // by [Answer.LogKey]
	Grants     Log[*Grant]         // by [Grant.LogKey]
	Allowances Allowances          // by [Allowance.LogKey]
	Signers    Log[*SignerEntry]   // by their ids
	Operators  Log[*OperatorEntry] // by their names
	Recovery   Log[*Recovery]      // by [RecoveryKey]
	Unfrozen   Log[*Unfreeze]      // by the tokens' ids

	// Fresh returns nil while every entry that was in the store [MaxAge] ago is known here, and
	// an error that wraps [ErrRevocationsUnknown] else.
	Fresh func() error
}

// Grant returns the newest grant for an identity, nil if there is none, and its revision. The
// error wraps [ErrUnread] if that cannot be read: it lets in no key. A grant that a recovery voids is none.
func (l *Logs) Grant(id wire.Identity) (*Grant, Revision, error) {
	e, _ := l.Grants.Get(id.SubjectToken())
	if l.newestRecovery().voids(e.Revision) {
		return nil, e.Revision, nil
	}
	return e.Value, e.Revision, e.Unread
}

// newestRecovery returns the newest recovery of the store, nil if there was none; its Entry is set. One that cannot be
// read voids what was there when it was written, and has not ended.
func (l *Logs) newestRecovery() *Recovery {
	e, found := l.Recovery.Get(RecoveryKey)
	switch {
	case !found:
		return nil
	case e.Unread != nil:
		return &Recovery{Began: e.At, Entry: e.Revision}
	case e.Value.Entry != 0:
		return e.Value
	}
	r := *e.Value
	r.Entry = e.Revision
	return &r
}

// unread are the keys whose newest entry cannot be decoded. The zero value has none; it is safe
// for concurrent use.
type unread struct {
	mu  sync.Mutex
	why map[string]error // guarded by mu, by kind and key
}

// watchUnread keeps the unread entries of a log.
func watchUnread[V any](u *unread, kind string, log Log[V]) {
	log.Watch(func(key string, e Entry[V]) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.why == nil {
			u.why = make(map[string]error)
		}
		if delete(u.why, kind+" "+key); e.Unread != nil {
			u.why[kind+" "+key] = e.Unread
		}
	})
}

// err returns the cause of [events.AlarmEntryUnread], nil if every entry can be decoded.
func (u *unread) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(u.why)) {
		return fmt.Errorf("%d entries cannot be read and let in nothing, such as the %s: %w", len(u.why), what, u.why[what])
	}
	return nil
}

// watch keeps the unread entries of all logs.
func (l *Logs) watch(u *unread) {
	watchUnread(u, "pause", l.Pauses.Log)
	watchUnread(u, "verdict", l.Answers.Log)
	watchUnread(u, "grant", l.Grants)
	watchUnread(u, "allow-list entry", l.Allowances.Log)
	watchUnread(u, "signer", l.Signers)
	watchUnread(u, "operator", l.Operators)
	watchUnread(u, "recovery", l.Recovery)
	watchUnread(u, "frozen token", l.Unfrozen)
}

// Change writes what next makes of the newest entry of a key, and decides anew if another
// process writes first. It returns the entry as written. Repeating it is harmless if next is.
func Change[V any](ctx context.Context, log Log[V], key string, next func(newest Entry[V]) (V, error)) (V, error) {
	var none V
	for range maxRounds {
		newest, _ := log.Get(key)
		v, err := next(newest)
		if err != nil {
			return none, err
		}
		if _, err = log.Put(ctx, key, v, newest.Revision); err == nil {
			return v, nil
		} else if !errors.Is(err, ErrConflict) {
			return none, err
		}
	}
	return none, fmt.Errorf("%w, %d times in a row", ErrConflict, maxRounds)
}
