package cli

import (
	"context"
	"io"
	"os"
)

// Await returns what f does: one that may wait for long, such as for whoever writes to a pipe, and
// that changes nothing. When ctx ends, it returns the error of that in place of it; f itself
// then ends with the process, and nobody sees what came of it.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // nobody may ask any more
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case r := <-done:
		return r.value, r.err
	}
}

// Open opens a file to read it, with [Input], and waits for whoever writes to it if it is
// a pipe: until ctx ends, whose error it then returns; see [Await].
func Open(ctx context.Context, path string) (*os.File, error) {
	return Await(ctx, func() (*os.File, error) { return os.Open(path) })
}

// Input returns in as a reader that ends with ctx, with its error: whoever waits for
// somebody to type, or for another program, ends at the first signal. What is read from
// in at that moment is lost, and the read itself ends with the process. It is not safe
// for concurrent use.
func Input(ctx context.Context, in io.Reader) io.Reader { return &input{ctx, in} }

type input struct {
	ctx context.Context //nolint:containedctx // a Reader has no other place for it
	in  io.Reader
}

// Read implements [io.Reader].
func (i *input) Read(p []byte) (int, error) {
	b, err := Await(i.ctx, func() ([]byte, error) {
		b := make([]byte, len(p)) // of its own: p is the caller's again after ctx
		n, err := i.in.Read(b)
		return b[:n], err
	})
	return copy(p, b), err
}
