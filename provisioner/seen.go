package provisioner

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// seen is when the entries of operators of one kind were last read to their end: pauses,
// verdicts, or the allow-list. The zero value is never. It is safe for concurrent use.
type seen struct {
	mu  sync.RWMutex
	age age // guarded by mu
}

// looked takes in the end of a look that began then.
func (s *seen) looked(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age.looked(began, err)
}

// check returns nil if that was within [MaxAge], and tried when the last look was.
func (s *seen) check(what string) (tried time.Time, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.age.tried, s.age.check(what)
}

// ensure returns nil if all entries of [MaxAge] ago are known, after another look if that is
// needed, as [Revocations].ensure does. The caller does not hold looking, and look is called with it.
//
// Neither the look nor the wait for another one takes longer than lookTimeout: one that goes
// through thousands of entries at a store that is far would have every worker wait for it, and
// nobody left for those who need none, such as confirmations. Whoever gives up is told to come
// back, and what the look has read by then stays read.
func (s *seen) ensure(ctx context.Context, looking lookLock, what string, look func(context.Context) error) error {
	if _, err := s.check(what); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := looking.lock(ctx); err != nil {
		if _, stale := s.check(what); stale != nil {
			return fmt.Errorf("%w: waited for who reads them: %w", stale, err)
		}
		return nil
	}
	defer looking.unlock()
	if tried, err := s.check(what); err == nil || time.Since(tried) < LookEvery {
		return err
	}
	_ = look(ctx) // check says so
	_, err := s.check(what)
	return err
}

// ensureOrders returns an error that wraps [ErrRevocationsUnknown] unless this process knows
// what operators have said within [MaxAge] of pauses, keys that are rejected, and names that
// are allowed. One that was stopped for minutes goes on with the requests that
// wait for it, before it has looked at anything.
func (p *Provisioner) ensureOrders(ctx context.Context) error {
	if err := p.pauses.seen.ensure(ctx, p.pauses.looking, "pauses", p.pauses.lookLocked); err != nil {
		return err
	}
	if err := p.answers.seen.ensure(ctx, p.answers.looking, "verdicts", p.answers.lookLocked); err != nil {
		return err
	}
	return p.allowances.seen.ensure(ctx, p.allowances.looking, "allow-list", p.allowances.read)
}

// A lookLock lets one look at a time, as a mutex does, and whoever waits for it can give up.
// Make it with newLookLock.
type lookLock chan struct{}

func newLookLock() lookLock { return make(lookLock, 1) }

// lock waits until nobody else looks, no longer than until ctx is done, whose error it
// returns then.
func (l lookLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}: // nobody does, whatever ctx says
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lookLock) unlock() { <-l }
