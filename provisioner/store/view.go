package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"muster/internal/wire"
	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

// A View is a [trust.Log] in memory. It has the entries of one subject prefix, and a [Follower] keeps it up to date.
type View[V any] struct {
	follower *Follower
	prefix   string // with the last dot
	decode   func(key string, data []byte) (V, error)
	scope    func(key string) string // subject of compare-and-set, if not the key
	useRoom  func(subject string, b []byte) error

	mu      sync.RWMutex
	newest  map[string]trust.Entry[V] // guarded by mu
	watched []func(string, trust.Entry[V])
}

type checker interface{ Check() error }

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
			if err := wire.DecodeStrict(data, v); err != nil {
				return nil, err
			}
			if err := v.Check(); err != nil {
				return nil, err
			}
			if got := key(v); got != of {
				return nil, fmt.Errorf("it belongs to key %.80q", got)
			}
			return v, nil
		},
	}
}

// Get implements [trust.Log].
func (v *View[V]) Get(key string) (trust.Entry[V], bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, ok := v.newest[key]
	return e, ok
}

// All implements [trust.Log].
func (v *View[V]) All() iter.Seq2[string, trust.Entry[V]] {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.All(maps.Clone(v.newest))
}

// Watch implements [trust.Log].
func (v *View[V]) Watch(applied func(string, trust.Entry[V])) {
	v.follower.mu.Lock() // nothing is applied meanwhile
	defer v.follower.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(v.newest), func(a, b string) int {
		return cmp.Compare(v.newest[a].Revision, v.newest[b].Revision)
	}) {
		applied(key, v.newest[key])
	}
	v.watched = append(v.watched, applied)
}

// Put implements [trust.Log]. If no acknowledgement comes, Put reads to the leader's end. If its entry is there, Put is
// done; another is a conflict. Otherwise it publishes the same bytes again under the same expected sequence.
func (v *View[V]) Put(ctx context.Context, key string, value V, expected trust.Revision) (trust.Revision, error) {
	b, err := json.Marshal(value)
	if err == nil {
		_, err = v.decode(key, b) // readers would reject an invalid entry
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
		if _, ok := errors.AsType[*jetstream.APIError](err); errors.Is(err, errDisconnected) || ok && !conflict {
			return 0, err
		}
		unsure = unsure || !conflict
		if readErr := v.follower.check(ctx); readErr != nil { // now the view has what the leader has
			return 0, errors.Join(err, readErr)
		}
		e, _ := v.Get(key)
		if current, _ := json.Marshal(e.Value); unsure && e.Revision > expected && bytes.Equal(current, b) {
			return e.Revision, nil // its acknowledgement was lost
		}
		if conflict || e.Revision > expected {
			return 0, fmt.Errorf("write %s: %w", subject, trust.ErrConflict)
		}
	}
}

// publish returns when the write was applied. After an error other than a conflict the entry may be stored now or
// later.
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

// The caller holds the follower's lock.
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
	v.newest[key] = e
	v.mu.Unlock()
	for _, applied := range v.watched {
		applied(key, e)
	}
}
