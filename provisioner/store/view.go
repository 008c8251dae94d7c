package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

// A View is the newest entry of each key below one prefix of subjects, in memory. It
// implements [trust.Log]. A [Follower] keeps it up to date, in the order of the stream.
type View[V any] struct {
	follower *Follower
	prefix   string // of subjects, with the last dot
	decode   func(key string, data []byte) (V, error)
	scope    func(key string) string // what compare-and-set is about, if not the key alone
	useRoom  func(subject string, b []byte) error

	mu      sync.RWMutex
	newest  map[string]trust.Entry[V] // guarded by mu
	list    []keyedEntry[V]           // guarded by mu: what All returns; nil after a change
	watched []func(string, trust.Entry[V])
}

// keyed is an entry with its key.
type keyedEntry[V any] struct {
	key string
	trust.Entry[V]
}

// checked is what can be decoded and then looked at.
type checker interface{ Check() error }

// newView returns the empty view of a kind of entries, each of which says itself what its key is.
func newView[T any, P interface {
	*T
	checker
}](prefix string, key func(P) string) *View[P] {
	return &View[P]{
		prefix:  prefix,
		newest:  make(map[string]trust.Entry[P]),
		useRoom: func(string, []byte) error { return nil },
		decode: func(of string, data []byte) (P, error) {
			v := P(new(T))
			if err := decodeStrictly(data, v); err != nil {
				return nil, err
			}
			if got := key(v); got != of {
				return nil, fmt.Errorf("it belongs to key %.80q", got)
			}
			return v, nil
		},
	}
}

// decodeStrictly decodes JSON without unknown members into dst and checks it.
func decodeStrictly(data []byte, dst checker) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		return err
	}
	if d.More() {
		return errors.New("data after the entry")
	}
	return dst.Check()
}

// Get implements [trust.Log].
func (v *View[V]) Get(key string) (trust.Entry[V], bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.newest[key]
	return e, ok
}

// All implements [trust.Log]. The entries are those of the call.
func (v *View[V]) All() iter.Seq2[string, trust.Entry[V]] {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list == nil {
		v.list = make([]keyedEntry[V], 0, len(v.newest))
		for key, e := range v.newest {
			v.list = append(v.list, keyedEntry[V]{key, e})
		}
	}
	list := v.list // is never changed
	return func(yield func(string, trust.Entry[V]) bool) {
		for _, k := range list {
			if !yield(k.key, k.Entry) {
				return
			}
		}
	}
}

// Watch implements [trust.Log].
func (v *View[V]) Watch(applied func(string, trust.Entry[V])) {
	v.follower.mu.Lock() // nothing is applied meanwhile
	defer v.follower.mu.Unlock()
	for _, k := range v.inOrder() {
		applied(k.key, k.Entry)
	}
	v.watched = append(v.watched, applied)
}

// inOrder returns the entries in the order of their revisions.
func (v *View[V]) inOrder() []keyedEntry[V] {
	v.mu.RLock()
	defer v.mu.RUnlock()
	list := make([]keyedEntry[V], 0, len(v.newest))
	for key, e := range v.newest {
		list = append(list, keyedEntry[V]{key, e})
	}
	slices.SortFunc(list, func(a, b keyedEntry[V]) int { return cmp.Compare(a.Revision, b.Revision) })
	return list
}

// Put implements [trust.Log]. After a write that is not acknowledged the view is brought
// to what the stream's leader has: the entry is there, which is done, or another one, which is
// a conflict. If there is neither, the same bytes are published again under the same expected
// sequence, of which at most one is taken.
func (v *View[V]) Put(ctx context.Context, key string, value V, expected trust.Revision) (trust.Revision, error) {
	b, err := json.Marshal(value)
	if err == nil {
		_, err = v.decode(key, b) // what would not be read is not written
	}
	subject := v.prefix + key
	if err == nil {
		err = v.useRoom(subject, b)
	}
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", subject, err)
	}
	ctx, cancel := context.WithTimeout(ctx, v.follower.client.timeout)
	defer cancel()
	for unsure := false; ; {
		sequence, err := v.publish(ctx, subject, b, uint64(expected))
		if err == nil {
			return sequence, nil
		}
		err = fmt.Errorf("write %s: %w", subject, err)
		conflict := errors.Is(err, trust.ErrConflict)
		var refused *jetstream.APIError
		if errors.Is(err, errDisconnected) || errors.As(err, &refused) && !conflict {
			return 0, err
		}
		unsure = unsure || !conflict
		if readErr := v.follower.check(ctx); readErr != nil { // what the leader has, this view has then
			return 0, errors.Join(err, readErr)
		}
		e, _ := v.Get(key)
		if there, _ := json.Marshal(e.Value); unsure && e.Revision > expected && bytes.Equal(there, b) {
			return e.Revision, nil // by a try whose acknowledgement was lost
		}
		if conflict || e.Revision > expected {
			return 0, fmt.Errorf("write %s: %w", subject, trust.ErrConflict)
		}
	}
}

// publish writes once, and returns when what was acknowledged was applied. After an error that is
// no conflict, the write may have been made or may yet be.
func (v *View[V]) publish(ctx context.Context, subject string, b []byte, expected uint64) (trust.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	condition := jetstream.WithExpectLastSequencePerSubject(expected)
	if v.scope != nil {
		key := strings.TrimPrefix(subject, v.prefix)
		condition = jetstream.WithExpectLastSequenceForSubject(expected, v.prefix+v.scope(key))
	}
	sequence, err := publishIf(ctx, v.follower.client.js, subject, b, condition)
	if err != nil {
		return 0, err
	}
	return trust.Revision(sequence), v.follower.catchUpTo(ctx, sequence)
}

// apply takes a message in if it is of this view. The caller holds the follower's lock.
func (v *View[V]) apply(m message) {
	key, ours := strings.CutPrefix(m.subject, v.prefix)
	if !ours {
		return
	}
	e := trust.Entry[V]{Revision: trust.Revision(m.sequence), At: m.at}
	if e.Value, e.Unread = v.decode(key, m.data); e.Unread != nil {
		e.Unread = fmt.Errorf("%w: sequence %d on %s: %w", trust.ErrUnread, m.sequence, m.subject, e.Unread)
	}
	v.mu.Lock()
	v.newest[key], v.list = e, nil
	v.mu.Unlock()
	for _, applied := range v.watched {
		applied(key, e)
	}
}
