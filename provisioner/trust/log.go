package trust

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"
)

// MaxAge is how old a view may be for a decision.
const MaxAge = 2 * time.Second

// Errors of logs and stores.
var (
	// ErrConflict means that another write came first: read and decide again.
	ErrConflict = errors.New("record has changed")

	// ErrStoreFull means that nothing was written for lack of room.
	ErrStoreFull = errors.New("store has no room left")

	// ErrUnread means that this version of muster cannot read an entry. Its key grants nothing.
	ErrUnread = errors.New("entry cannot be read")

	// ErrRevocationsUnknown means that the views are too old to admit a node.
	ErrRevocationsUnknown = errors.New("revocations are out of date")

	// ErrUnacknowledged means that an order may have been carried out. Repeating the order is harmless.
	ErrUnacknowledged = errors.New("not acknowledged by the store, it may have been carried out: ask again")
)

// CauseUnread is the cause of a refusal because of an unreadable entry.
var CauseUnread = Cause{By: "another version of muster",
	Why: "this version cannot read the entry: give the order again"}

// A Revision is the sequence of an entry, for compare-and-set. 0 means no entry.
type Revision uint64

// An Entry is the newest entry of one key in a [Log].
type Entry[V any] struct {
	Value    V
	Revision Revision
	At       time.Time // by the store's clock

	// Unread is why the entry cannot be decoded, or nil.
	Unread error
}

// A Log holds the newest entry of each key. It is safe for concurrent use.
type Log[V any] interface {
	// Get returns the newest entry of a key.
	Get(key string) (Entry[V], bool)

	// All returns the newest entry of each key, in no order.
	All() iter.Seq2[string, Entry[V]]

	// Put writes an entry if expected (0: none) is still the newest revision of its key; for a [Revocation], of its
	// node. Otherwise it returns [ErrConflict], and Get returns the newest entry. After other errors except
	// [ErrStoreFull] the entry may be stored now or later. Repeating is harmless: one write per expected revision
	// succeeds.
	Put(ctx context.Context, key string, v V, expected Revision) (Revision, error)

	// Watch calls applied for all current and later entries, one at a time, in order. applied must neither call Put nor
	// block.
	Watch(applied func(key string, e Entry[V]))
}

const maxChanges = 8

// Change writes what next returns for the newest entry. After a conflict it tries again.
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

// Check validates a cause. JSON must keep it unchanged.
func (c Cause) Check() error {
	switch {
	case c.By == "":
		return errors.New("no operator is named")
	case len(c.By) > maxCauseBytes:
		return fmt.Errorf("the operator's name has %d bytes, limit %d", len(c.By), maxCauseBytes)
	case len(c.Why) > maxCauseBytes:
		return fmt.Errorf("the reason has %d bytes, limit %d", len(c.Why), maxCauseBytes)
	case !utf8.ValidString(c.By) || !utf8.ValidString(c.Why): // JSON replaces each invalid byte by three
		return fmt.Errorf("name %.80q and reason %.80q, want both in UTF-8", c.By, c.Why)
	}
	return nil
}
