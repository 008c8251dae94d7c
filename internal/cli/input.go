package cli

import (
	"context"
	"io"
	"os"
)

// Open opens a file to read it, with [Input], and waits for whoever writes to it if it is
// a pipe: until ctx ends, whose error it then returns. The wait itself ends with the process.
func Open(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1) // nobody may ask any more
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case o := <-done:
		return o.f, o.err
	}
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
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		b := make([]byte, len(p)) // of its own: p is the caller's again after ctx
		n, err := i.in.Read(b)
		done <- read{b[:n], err}
	}()
	select {
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	case r := <-done:
		return copy(p, r.b), r.err
	}
}
