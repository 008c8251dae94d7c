package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
)

// The agent's backoff, but with shorter first waits, since a wave ends with its last node.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second

	// patience bounds a node's attempts, without the waits that provisioners ask for: enough for eight requests without
	// a reply.
	patience = 2 * time.Minute
)

const (
	concurrency = 256
	maxWhy      = 5
)

// counts are the outcomes of a fleet's nodes. mu guards all fields but begun.
type counts struct {
	begun atomic.Int64

	mu sync.Mutex

	*failures // of all waves

	enrolled, provisioned int
	latencies             []time.Duration
	last                  time.Time
}

func (f *fleet) playAll(ctx context.Context, start time.Time) error {
	defer f.closeLinks()
	if f.cfg.Rate > 0 {
		f.open(ctx, start)
		return ctx.Err()
	}
	// A closed loop: the next node starts when one is done.
	return each(ctx, len(f.nodes), concurrency, func(i int) error {
		f.runNode(ctx, f.nodes[i], time.Now())
		return nil
	})
}

// open starts nodes at a fixed rate. Latency counts from a node's scheduled start, so it includes the waits that a
// stalled provisioner causes.
func (f *fleet) open(ctx context.Context, start time.Time) {
	var all sync.WaitGroup
	defer all.Wait()
	for i, n := range f.nodes {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(f.cfg.Rate))
		if !span.Sleep(ctx, time.Until(due)) {
			return
		}
		all.Go(func() { f.runNode(ctx, n, due) })
	}
}

func (f *fleet) runNode(ctx context.Context, n *node, since time.Time) {
	f.count.begun.Add(1)
	defer f.hangUp(n)
	limit, backoff := time.Now().Add(patience), firstBackoff
	for {
		err := f.act(ctx, n)
		if err == nil {
			f.countDone(time.Since(since))
			return
		}
		wait, again := f.count.judge(err, backoff)
		if _, ok := errors.AsType[*refusal](err); ok {
			limit = limit.Add(wait)
		} else {
			f.hangUp(n)
			backoff = min(2*backoff, lastBackoff)
		}
		if !again || time.Now().After(limit) || !span.Sleep(ctx, wait) {
			f.countFailed(n, err)
			return
		}
	}
}

// hangUp closes the node's own connection, if any.
func (f *fleet) hangUp(n *node) {
	if n.link != nil && len(f.links) == 0 {
		n.link.close()
		n.link = nil
	}
}

// judge counts a failure, and decides whether and when the node tries again.
func (c *counts) judge(err error, backoff time.Duration) (wait time.Duration, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r *refusal
	switch {
	case errors.As(err, &r):
		c.Refusals[r.Code]++
		if wait = r.Wait(); wait == 0 {
			wait = backoff
		}
		return jitter(wait), r.unsealed || r.Code == wire.CodeBusy || r.Code == wire.CodeUnavailable
	case errors.Is(err, errWrong):
		return 0, false
	case errors.Is(err, errTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		c.Unanswered++
	default:
		c.Broken++
	}
	return jitter(backoff), true
}

// jitter adds up to a quarter to the wait, as the agent does.
func jitter(wait time.Duration) time.Duration {
	return wait + rand.N(wait/4+1) //nolint:gosec // spreads load, hides nothing
}

func (f *fleet) countDone(took time.Duration) {
	c := f.count
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enrolled++
	if f.applied {
		c.provisioned++
	}
	c.last = time.Now()
	c.latencies = append(c.latencies, took)
}

func (f *fleet) countFailed(n *node, err error) {
	c := f.count
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := errors.AsType[*refusal](err); ok {
		c.Refused++
	} else {
		c.Failed++
	}
	if f.applied && n.offer != nil {
		c.enrolled++
	}
	c.noteCause(n, err)
}

// noteCause keeps the first few causes. The caller holds mu.
func (c *counts) noteCause(n *node, err error) {
	if len(c.Why) < maxWhy {
		c.Why = append(c.Why, n.Identity+": "+err.Error())
	}
}
