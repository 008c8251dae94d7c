package provisioner

import (
	"context"
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
func (s *seen) ensure(ctx context.Context, looking *sync.Mutex, what string, look func(context.Context) error) error {
	if _, err := s.check(what); err == nil {
		return nil
	}
	looking.Lock()
	defer looking.Unlock()
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
	if err := p.pauses.seen.ensure(ctx, &p.pauses.looking, "pauses", p.pauses.lookLocked); err != nil {
		return err
	}
	if err := p.answers.seen.ensure(ctx, &p.answers.looking, "verdicts", p.answers.lookLocked); err != nil {
		return err
	}
	return p.allowances.seen.ensure(ctx, &p.allowances.looking, "allow-list", p.allowances.read)
}
