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
	kept sync.Map // of *policy, by the digest of all files, tests too
}

// policy returns the policy of these files, compiled and tested, or what is wrong
// with them.
func (c *Cache) policy(ctx context.Context, files string, all []source) (*policy, error) {
	if c == nil {
		return passing(ctx, all)
	}
	if kept, ok := c.kept.Load(files); ok {
		return kept.(*policy), nil
	}
	p, err := passing(ctx, all)
	if err == nil {
		c.kept.Store(files, p)
	}
	return p, err
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
