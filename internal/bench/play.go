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

// counts are the outcomes of a fleet's nodes. mu guards all fields.
type counts struct {
	begun atomic.Int64

	mu sync.Mutex

	enrolled, provisioned int
	refused, failed       int
	refusals              map[wire.Code]int
	broken, unanswered    int
	why                   []string
	latencies             []time.Duration
	last                  time.Time
}

func (f *fleet) playAll(ctx context.Context, start time.Time) error {
	defer func() {
		for _, l := range f.links {
			l.close()
		}
	}()
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
		after := time.Duration(float64(i) / f.cfg.Rate * float64(time.Second))
		due := start.Add(after)
		if !span.Sleep(ctx, time.Until(due)) {
			return
		}
		all.Go(func() { f.runNode(ctx, n, due) })
	}
}

func (f *fleet) runNode(ctx context.Context, n *node, since time.Time) {
	f.count.begun.Add(1)
	var own link
	defer func() { hangUp(own) }()
	limit, backoff := time.Now().Add(patience), firstBackoff
	for {
		err := f.attempt(ctx, n, &own)
		if err == nil {
			f.count.countDone(f.applied, time.Since(since))
			return
		}
		wait, again := f.count.judge(err, backoff)
		if _, ok := errors.AsType[*refusal](err); ok {
			limit = limit.Add(wait)
		} else {
			hangUp(own)
			own, backoff = nil, min(2*backoff, lastBackoff)
		}
		if !again || time.Now().After(limit) || !span.Sleep(ctx, wait) {
			f.count.countFailed(n, err)
			return
		}
	}
}

func hangUp(own link) {
	if own != nil {
		own.close()
	}
}

// attempt connects, enrolls and confirms, as far as not done yet. own is the node's own connection, if any.
func (f *fleet) attempt(ctx context.Context, n *node, own *link) (err error) {
	if f.act != nil {
		return f.act(ctx, n)
	}
	l := *own
	switch {
	case n.own == nil:
		l = n.link
	case l == nil:
		if l, err = f.dial(n.own); err == nil {
			*own = l
		}
	}
	if err == nil && n.offer == nil {
		err = f.enroll(l, n)
	}
	if err == nil && f.applied {
		err = f.apply(l, n)
	}
	return err
}

// judge counts a failure, and decides whether and when the node tries again.
func (c *counts) judge(err error, backoff time.Duration) (wait time.Duration, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r *refusal
	switch {
	case errors.As(err, &r):
		c.refusals[r.Code]++
		if wait = r.Wait(); wait == 0 {
			wait = backoff
		}
		return jitter(wait), r.unsealed || r.Code == wire.CodeBusy || r.Code == wire.CodeUnavailable
	case errors.Is(err, errWrong):
		return 0, false
	case errors.Is(err, errTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		c.unanswered++
	default:
		c.broken++
	}
	return jitter(backoff), true
}

// jitter adds up to a quarter to the wait, as the agent does.
func jitter(wait time.Duration) time.Duration {
	return wait + rand.N(wait/4+1) //nolint:gosec // spreads load, hides nothing
}

func (c *counts) countDone(applied bool, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enrolled++
	if applied {
		c.provisioned++
	}
	c.last = time.Now()
	c.latencies = append(c.latencies, took)
}

func (c *counts) countFailed(n *node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := errors.AsType[*refusal](err); ok {
		c.refused++
	} else {
		c.failed++
	}
	if n.offer != nil {
		c.enrolled++
	}
	c.noteCause(n, err)
}

// noteCause keeps the first few causes. The caller holds mu.
func (c *counts) noteCause(n *node, err error) {
	if len(c.why) < maxWhy {
		c.why = append(c.why, n.Identity+": "+err.Error())
	}
}
