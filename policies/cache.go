package policies

import (
	"context"
	"sync"
)

// A Cache keeps policies that compiled and whose tests passed, so that engines
// with the same files share one: where a process has many engines, as tests have
// that start a fleet each, compiling and testing would be most of what they do.
// It forgets nothing. What a shared policy says of a file's place is where the
// first engine had it. A policy with a mistake is not kept: each engine
// finds it in files of its own. The zero value is empty, nil keeps nothing, and it
// is safe for concurrent use.
type Cache struct {
	mu   sync.Mutex
	kept map[string]*cached // guarded by mu; by the digest of all files, tests too
}

// cached is a policy, nil until it has passed.
type cached struct {
	mu sync.Mutex // held while it is compiled and tested
	p  *policy    // guarded by mu
}

// policy returns the policy of these files, compiled and tested, or what is wrong
// with them.
func (c *Cache) policy(ctx context.Context, files string, all []source) (*policy, error) {
	if c == nil {
		return passing(ctx, all)
	}
	k := c.of(files)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p != nil {
		return k.p, nil
	}
	p, err := passing(ctx, all)
	if err == nil {
		k.p = p
	}
	return p, err
}

// of returns the place of these files' policy.
func (c *Cache) of(files string) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kept[files]
	if k == nil {
		if c.kept == nil {
			c.kept = make(map[string]*cached)
		}
		k = &cached{}
		c.kept[files] = k
	}
	return k
}

// passing compiles a policy and runs its tests, all of which must pass.
func passing(ctx context.Context, all []source) (*policy, error) {
	p, err := compile(ctx, all)
	if err != nil {
		return nil, err
	}
	results, err := p.test(ctx)
	if err == nil {
		err = failures(results)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
