package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrSilent means that who listens takes connections and says nothing: a process that was
// stopped or hangs, or a machine that is gone. What it was asked for may have happened.
var ErrSilent = errors.New("it takes connections and says nothing")

// quietTime is how long nothing new may come of an answer before it is asked whether
// anybody is there, and how long that may take. Chosen: who hangs is told of within twice as
// long. Who is there is waited for, since some answers take minutes: see answerTimeout.
const quietTime = 10 * time.Second

// A watch ends a request whose provisioner has fallen silent. It lasts until the answer is
// closed.
type watch struct {
	c     *Client
	heard atomic.Bool // something of the answer has come since it was last looked
	end   context.CancelCauseFunc
}

// watch returns a context for a request, which ends with [ErrSilent] as its cause when nobody
// is there any more. End the watch.
func (c *Client) watch(ctx context.Context) (context.Context, *watch) {
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{c: c, end: end}
	go w.run(ctx)
	return ctx, w
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.c.quiet)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !w.heard.Swap(false) && !w.c.answers(ctx) && !w.heard.Load() {
			w.end(ErrSilent)
		}
	}
}

// answers reports whether anybody is there: who cannot be reached at all shows by the
// request itself.
func (c *Client) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.quiet)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/healthz", nil)
	if err != nil {
		return true
	}
	resp, err := c.http.Do(r)
	if err == nil {
		_ = resp.Body.Close() // its beginning says it
	}
	return !errors.Is(err, context.DeadlineExceeded)
}

// A watched is the body of an answer.
type watched struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // whose cause says why it was cut off
	watch *watch
}

// Read implements [io.Reader].
func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.heard.Store(true)
	}
	if err != nil && errors.Is(context.Cause(b.ctx), ErrSilent) {
		err = b.watch.c.explain(ErrSilent)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	b.watch.end(nil)
	return err
}
