package daemon

import (
	"context"
	"errors"
)

// errLate says that what was asked is not known in time.
var errLate = errors.New("not in time")

// A diskCall is for what may block for as long as a disk does, where no context
// reaches: files, JetStream in this process, and also a write through its connection,
// which waits for everybody else's to be sent. One is under way at most. Whoever waits
// no longer leaves it to itself, and the next one waits for it rather than adding
// another. It is not safe for concurrent use.
type diskCall[T any] struct {
	under chan outcome[T] // way; nil if none is
}

type outcome[T any] struct {
	value T
	err   error
}

// do returns what f does, or [errLate] if ctx is done earlier. Of a call that was left to
// itself a success counts; it may have failed for being late, so f is called again then.
func (c *diskCall[T]) do(ctx context.Context, f func() (T, error)) (T, error) {
	var unknown T
	if ctx.Err() != nil {
		return unknown, errLate
	}
	for {
		left := c.under != nil
		if !left {
			under := make(chan outcome[T], 1)
			c.under = under
			go func() {
				v, err := f()
				under <- outcome[T]{v, err}
			}()
		}
		select {
		case o := <-c.under:
			c.under = nil
			if !left || o.err == nil {
				return o.value, o.err
			}
		case <-ctx.Done():
			return unknown, errLate
		}
	}
}

// run is do for what has no value.
func run(ctx context.Context, c *diskCall[struct{}], f func(context.Context) error) error {
	_, err := c.do(ctx, func() (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
