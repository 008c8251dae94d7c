package trust

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"
)

// MaxAge bounds the age of views for decisions.
const MaxAge = 2 * time.Second

// Errors of logs and stores.
var (
	// ErrConflict means that another write came first: read and decide again.
	ErrConflict = errors.New("record has changed")

	// ErrStoreFull means that nothing was written for lack of room.
	ErrStoreFull = errors.New("store has no room left")

	// ErrUnread means that another version of muster wrote an entry. Its key grants nothing.
	ErrUnread = errors.New("entry cannot be read")

	// ErrRevocationsUnknown means that the views are too old to admit a node.
	ErrRevocationsUnknown = errors.New("revocations are out of date")

	// ErrUnacknowledged means that an order may be carried out. Asking again is harmless.
	ErrUnacknowledged = errors.New("not acknowledged by the store, it may have been carried out: ask again")
)

// CauseUnread is the cause of an unreadable entry's refusals.
var CauseUnread = Cause{By: "another version of muster",
	Why: "this version cannot read the entry: give the order again"}

// A Revision is a sequence for compare-and-set. 0 means none.
type Revision uint64

// An Entry is the newest of one key of a [Log].
type Entry[V any] struct {
	Value    V
	Revision Revision
	At       time.Time // by the store's clock

	// Unread is why the entry cannot be decoded.
	Unread error
}

// A Log holds the newest entry of each key. It is safe for concurrent use.
type Log[V any] interface {
	// Get returns the newest entry of a key.
	Get(key string) (Entry[V], bool)

	// All returns them in no order.
	All() iter.Seq2[string, Entry[V]]

	// Put writes an entry if the newest of its key, or of its node for a [Revocation], is still expected (0: none),
	// else it returns [ErrConflict]. Then Get returns the newest entry. After other errors than [ErrStoreFull] the
	// entry may be written, now or later. Repeating is harmless: one write per expected revision succeeds.
	Put(ctx context.Context, key string, v V, expected Revision) (Revision, error)

	// Watch calls applied for present and new entries, one at a time in order. applied must neither call Put nor block.
	Watch(applied func(key string, e Entry[V]))
}

const maxChanges = 8

// Change writes what next makes of the newest entry, again after a conflict.
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

// A Cause is the operator and the reason of an order. By is required.
type Cause struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

const maxCauseBytes = 200

// Check validates a cause: JSON must not change it.
func (c Cause) Check() error {
	switch {
	case c.By == "":
		return errors.New("no operator is named")
	case len(c.By) > maxCauseBytes:
		return fmt.Errorf("the operator's name has %d bytes, limit %d", len(c.By), maxCauseBytes)
	case len(c.Why) > maxCauseBytes:
		return fmt.Errorf("the reason has %d bytes, limit %d", len(c.Why), maxCauseBytes)
	case !utf8.ValidString(c.By) || !utf8.ValidString(c.Why): // JSON has three bytes for each invalid one
		return fmt.Errorf("name %.80q and reason %.80q, want both in UTF-8", c.By, c.Why)
	}
	return nil
}
