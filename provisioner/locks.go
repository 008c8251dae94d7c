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

// locks lets one request per identity through at a time. It spares work and keeps requests
// from racing each other within the process; between processes, compare-and-set decides. The
// zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[wire.Identity]*lock // guarded by mu; only identities with requests in hand
}

type lock struct {
	turn  chan struct{} // holds one token while no request has the lock
	users int           // guarded by locks.mu: the holder and those who wait
}

// lock waits for the identity's turn and returns what gives it up. It fails
// with errCrowded, or with the context's error.
//
// Before it waits for another request, it asks worth, and fails with its error: a request that
// is refused in any case must not fill the places of those that are not.
func (l *locks) lock(ctx context.Context, id wire.Identity, worth func() error) (unlock func(), err error) {
	l.mu.Lock()
	if l.held[id] != nil {
		l.mu.Unlock()
		if err := worth(); err != nil {
			return nil, err
		}
		l.mu.Lock()
	}
	if l.held == nil {
		l.held = make(map[wire.Identity]*lock)
	}
	k := l.held[id]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
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

// turn waits for the turn of a request and returns what gives it up, or a *[Refusal].
func (p *Provisioner) turn(ctx context.Context, id wire.Identity, worth func() error) (unlock func(), err error) {
	unlock, err = p.locks.lock(ctx, id, worth)
	if r := (*Refusal)(nil); err != nil && !errors.As(err, &r) {
		err = refuse(string(id), wire.CodeBusy, err)
	}
	return unlock, err
}
