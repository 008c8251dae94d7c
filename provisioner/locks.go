package provisioner

import (
	"context"
	"errors"
	"sync"
)

// maxWaiting is how many requests for one identity may wait for the one in
// hand. A node sends one at a time; the rest are repeats after a time-out, or
// somebody who wants our workers to wait.
const maxWaiting = 8

// errCrowded says that too many requests for one key, an identity, are waiting.
var errCrowded = errors.New("too many requests for this identity at once")

// keyLocks lets one request per key through at a time: an identity, or a pattern of the
// allow-list. It spares work and keeps requests from racing each other within the process;
// between processes, compare-and-set decides. The zero value is ready.
type keyLocks[K comparable] struct {
	most int // how many may wait for one key; 0: as many as there are

	mu   sync.Mutex
	held map[K]*keyLock // guarded by mu; only keys with requests in hand
}

type keyLock struct {
	turn  chan struct{} // holds one token while nobody has the lock
	users int           // guarded by keyLocks.mu: the holder and those who wait
}

// lock waits for the key's turn and returns what gives it up. It fails
// with errCrowded, or with the context's error.
//
// Before it waits for somebody else, it asks worth, and fails with its error: who would be
// refused in any case must not fill the places of those who would not. Nil is always.
func (l *keyLocks[K]) lock(ctx context.Context, key K, worth func() error) (unlock func(), err error) {
	l.mu.Lock()
	if l.held[key] != nil && worth != nil {
		l.mu.Unlock()
		if err := worth(); err != nil {
			return nil, err
		}
		l.mu.Lock()
	}
	if l.held == nil {
		l.held = make(map[K]*keyLock)
	}
	k := l.held[key]
	if k == nil {
		k = &keyLock{turn: make(chan struct{}, 1)}
		k.turn <- struct{}{}
		l.held[key] = k
	}
	if l.most > 0 && k.users > l.most {
		l.mu.Unlock()
		return nil, errCrowded
	}
	k.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case <-k.turn:
		return func() { k.turn <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
