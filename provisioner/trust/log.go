package trust

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"
)

// MaxAge is how old the views of a process may be. Beyond it no request is decided and no
// connection admitted.
const MaxAge = 2 * time.Second

// Errors of logs and stores.
var (
	// ErrConflict means that a write was not made because another one came before it: read
	// again and decide anew.
	ErrConflict = errors.New("record has changed")

	// ErrStoreFull means that a write was not made for lack of room, and that nothing but more
	// room helps: the store itself is well.
	ErrStoreFull = errors.New("store has no room left")

	// ErrUnread means that an entry of a log is none that this version of muster can read:
	// another version wrote it. What it is about is known by its key, which lets in nothing
	// until a newer entry replaces it.
	ErrUnread = errors.New("entry cannot be read")

	// ErrRevocationsUnknown means that the views of this process are too old: it must admit
	// no node. It goes on by itself once the store answers.
	ErrRevocationsUnknown = errors.New("revocations not seen")

	// ErrUnacknowledged means that the store has not acknowledged an order, which may have been
	// carried out or may yet be. Asking again is harmless.
	ErrUnacknowledged = errors.New("not acknowledged by the store, it may have been done: ask again")
)

// CauseUnread is the cause of what is kept out by an entry that cannot be read.
var CauseUnread = Cause{By: "another version of muster", Why: "this one cannot read it, and lets nobody in until it is said anew"}

// A Revision is the sequence of a record or an entry in its stream, the handle of
// compare-and-set: a write names the revision that it was decided on. 0 means that there was
// none.
type Revision uint64

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
// It is safe for concurrent use.
type Log[V any] interface {
	// Get returns the newest entry of a key.
	Get(key string) (Entry[V], bool)

	// All returns the newest entry of each key, in no order.
	All() iter.Seq2[string, Entry[V]]

	// Put writes an entry, provided that the newest of its key, or of its node for a
	// [Revocation], is still expected (0: there is none). When it returns, Get sees the entry,
	// or the one that came first, which is [ErrConflict]. [ErrStoreFull] means that it was not
	// written; after any other error it may be, or may yet be. Writing it again is harmless: at
	// most one write with the same expected revision is made.
	Put(ctx context.Context, key string, v V, expected Revision) (Revision, error)

	// Watch calls applied for each entry that Get returns, and then for each that replaces
	// one, one call at a time, in the order of their revisions. applied must not call Put, and
	// must not block.
	Watch(applied func(key string, e Entry[V]))
}

// maxChanges bounds how often [Change] decides anew.
const maxChanges = 8

// Change writes what next makes of the newest entry of a key, and decides anew if another
// process writes first. It returns the entry as written. Repeating it is harmless if next is.
func Change[V any](ctx context.Context, log Log[V], key string, next func(newest Entry[V]) (V, error)) (V, error) {
	var none V
	for range maxChanges {
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
	return none, fmt.Errorf("%w, %d times in a row", ErrConflict, maxChanges)
}

// A Cause says who ordered something and why, for the history. Both are free
// text of at most 200 bytes; By is required.
type Cause struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// maxCauseBytes bounds each text of a cause, which is a sentence and a ticket.
const maxCauseBytes = 200

// Check reports what is wrong with the cause. What passes reads the same, and passes again,
// once it was written as JSON: an entry of the store whose cause does not pass counts for
// nothing.
func (c Cause) Check() error {
	switch {
	case c.By == "":
		return errors.New("nobody is named as the one who asks")
	case len(c.By) > maxCauseBytes:
		return fmt.Errorf("the name of the one who asks has %d bytes, limit %d", len(c.By), maxCauseBytes)
	case len(c.Why) > maxCauseBytes:
		return fmt.Errorf("the reason has %d bytes, limit %d", len(c.Why), maxCauseBytes)
	case !utf8.ValidString(c.By) || !utf8.ValidString(c.Why): // JSON has three bytes for each that is not
		return fmt.Errorf("name %.80q and reason %.80q, want both in UTF-8", c.By, c.Why)
	}
	return nil
}
