package provisioner

import (
	"context"
	"errors"
	"sync"

	"muster/internal/wire"
)

// maxWaiting is how many requests for one identity may wait for the one in
// hand. A node sends one at a time; the rest are repeats after a time-out, or
// somebody who wants our workers to wait.
const maxWaiting = 8

// errCrowded says that too many requests for one identity are waiting.
var errCrowded = errors.New("too many requests for this identity at once")

// identityLocks lets one request per identity through at a time. It spares work
// and keeps retries from racing each other within the process; between
// processes, compare-and-set decides. The zero value is ready.
type identityLocks struct {
	mu   sync.Mutex
	held map[wire.Identity]*identityLock // guarded by mu; only identities with requests in hand
}

type identityLock struct {
	turn  chan struct{} // holds one token while nobody has the lock
	users int           // guarded by identityLocks.mu: the holder and those who wait
}

// lock waits for the identity's turn and returns what gives it up. It fails
// with errCrowded, or with the context's error.
func (l *identityLocks) lock(ctx context.Context, id wire.Identity) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[wire.Identity]*identityLock)
	}
	k := l.held[id]
	if k == nil {
		k = &identityLock{turn: make(chan struct{}, 1)}
		k.turn <- struct{}{}
		l.held[id] = k
	}
	if k.users > maxWaiting {
		l.mu.Unlock()
		return nil, errCrowded
	}
	k.users++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, id)
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
