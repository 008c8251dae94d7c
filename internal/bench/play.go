package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"muster/internal/wire"
)

// Retries of a simulated node where nobody says when to come back: as the
// agent's, but shorter at the start, since a bench waits for the last node.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second

	// patience is how long a node tries, beyond the waits that it was told:
	// eight requests without a reply.
	patience = 2 * time.Minute
)

// closed keeps as many nodes in hand as the concurrency says: the next begins
// when one is through.
func (d *driver) closed(ctx context.Context, start time.Time) {
	var all sync.WaitGroup
	for range d.order.Concurrency {
		all.Go(func() {
			w := &walker{driver: d}
			for i := d.begun.Add(1) - 1; int(i) < len(d.nodes) && ctx.Err() == nil; i = d.begun.Add(1) - 1 {
				w.node(ctx, d.nodes[i], time.Now())
				if d.order.Duration > 0 && time.Since(start) > time.Duration(d.order.Duration) {
					return
				}
			}
		})
	}
	all.Wait()
}

// open begins nodes at a rate, whatever becomes of those before. Latency counts
// from when a node was to begin: a provisioner that stalls is not let off the
// nodes that would have come meanwhile.
func (d *driver) open(ctx context.Context, start time.Time) {
	var all sync.WaitGroup
	defer all.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, n := range d.nodes {
		if d.order.Duration > 0 && float64(i)/d.order.Rate >= time.Duration(d.order.Duration).Seconds() {
			return // that many nodes come in it
		}
		due := start.Add(time.Duration(d.order.Offset) + time.Duration(float64(i)/d.order.Rate*float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		d.begun.Add(1)
		all.Go(func() { (&walker{driver: d}).node(ctx, n, due) })
	}
}

// A walker takes one node after the other through enrollment.
type walker struct {
	*driver
	link    link // of the present node, nil if there is none
	scratch []byte
}

// node takes one node through, and counts what becomes of it.
func (w *walker) node(ctx context.Context, n *node, since time.Time) {
	defer w.disconnect(n, nil)
	defer w.done.Add(1)
	limit := time.Now().Add(patience)
	backoff := firstBackoff
	var offer *wire.Enrolled
	for {
		link, err := w.connect(n)
		if err == nil && offer == nil {
			if offer, err = w.enroll(link, n); err == nil {
				n.certificate, n.ca = offer.Certificate, offer.CA
			}
		}
		if err == nil && w.order.Applied {
			err = w.apply(link, n, offer)
		}
		if err == nil {
			w.through(since)
			return
		}
		wait, again := w.judge(err, backoff)
		if !again || ctx.Err() != nil || time.Now().After(limit) {
			w.lost(n, err, offer != nil)
			return
		}
		var refused *refusal
		if errors.As(err, &refused) {
			limit = limit.Add(wait)
		} else {
			w.disconnect(n, link)
			backoff = min(2*backoff, lastBackoff)
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// A refusal is a provisioner's, as an error; or anybody's, if it is not sealed
// and should be.
type refusal struct {
	wire.Refusal
	anybodys bool
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// errWrong means that a reply is not what a node must get.
var errWrong = errors.New("wrong reply")

// errCrossed means that a reply is to somebody else's request. An agent passes it
// over and asks again. The broker tells the requests in hand apart by six letters
// of 62 that it draws, so of 100,000 nodes with 256 in hand two get the same once
// in a thousand times: then the reply to the first goes to the second, and its own
// nowhere.
var errCrossed = errors.New("a reply to another request")

// maxCrossed is how many replies may cross in a wave before it is a fault.
const maxCrossed = 2

// judge counts what went wrong and says whether to try again, and when.
func (w *walker) judge(err error, backoff time.Duration) (wait time.Duration, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r *refusal
	switch {
	case errors.As(err, &r):
		w.outcome.Refusals[r.Code]++
		if wait = r.Wait(); wait == 0 {
			wait = backoff
		}
		return jitter(wait), r.anybodys || r.Code == wire.CodeBusy || r.Code == wire.CodeUnavailable
	case errors.Is(err, errWrong):
		return 0, false
	case errors.Is(err, errCrossed):
		w.outcome.Crossed++
		return jitter(backoff), w.outcome.Crossed <= maxCrossed
	case errors.Is(err, errTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		w.outcome.Unanswered++
	default:
		w.outcome.Broken++
	}
	return jitter(backoff), true
}

// jitter adds up to a quarter, as the agent does.
func jitter(wait time.Duration) time.Duration {
	return wait + rand.N(wait/4+1) //nolint:gosec // spreads load, hides nothing
}

// through counts a node that got through.
func (w *walker) through(since time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcome.Enrolled++
	if w.order.Applied {
		w.outcome.Provisioned++
	}
	w.outcome.End = max(w.outcome.End, now.UnixNano())
	w.latencies = append(w.latencies, microseconds(now.Sub(since)))
}

// maxWhy is how many causes are kept; more of the same say no more.
const maxWhy = 5

// lost counts a node that did not get through.
func (w *walker) lost(n *node, err error, enrolled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r *refusal
	if errors.As(err, &r) {
		w.outcome.Refused++
	} else {
		w.outcome.Failed++
	}
	if enrolled {
		w.outcome.Enrolled++
	}
	if len(w.outcome.Why) < maxWhy {
		w.outcome.Why = append(w.outcome.Why, n.identity+": "+err.Error())
	}
}
