package provisioner

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"muster/internal/wire"
)

// A node sends one request at a time; more are repeats after time-outs, or an attack on the workers. The limit is by
// address, so that a token holder cannot keep another machine from its name.
const maxWaiting = 8

var errTooManyWaiting = errors.New("too many requests for this identity from this address at once")

// locks serializes requests for one identity. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[wire.Identity]*lock // guarded by mu
}

type lock struct {
	free  chan struct{}        // holds one token while unlocked
	users map[netip.Prefix]int // guarded by locks.mu: the holder and the waiting requests, by source
}

func (l *locks) lock(ctx context.Context, id wire.Identity, source netip.Prefix) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[wire.Identity]*lock)
	}
	k := l.held[id]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1), users: make(map[netip.Prefix]int)}
		k.free <- struct{}{}
		l.held[id] = k
	}
	if k.users[source] > maxWaiting {
		l.mu.Unlock()
		return nil, errTooManyWaiting
	}
	k.users[source]++
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users[source]--; k.users[source] == 0 {
			delete(k.users, source)
		}
		if len(k.users) == 0 {
			delete(l.held, id)
		}
	}
	select {
	case <-k.free:
		return func() { k.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

func (p *Provisioner) lockIdentity(ctx context.Context, id wire.Identity, source Source) (unlock func(), err error) {
	unlock, err = p.locks.lock(ctx, id, source.Key())
	if err != nil {
		return nil, refuse(wire.CodeBusy, err)
	}
	return unlock, nil
}
