package natsapi

import (
	"net/netip"
	"time"

	"muster/internal/limit"
)

// A waiter is a request that waits, with what is known of its sender.
type waiter struct {
	*call
	since  time.Time // monotonic
	places int
}

// A queue is what waits for a few goroutines, confirmations apart from all else: a node with a certificate does not
// wait a second time behind all that have none yet, and neither kind keeps the other out. Make one with [newQueue].
type queue struct {
	placeBytes            int // of a request for which it takes a place
	confirmations, others line
}

// A line is bounded, and shared by the addresses that requests come from, so that an address that sends more than can
// be served leaves room to others.
type line struct {
	waiting chan *waiter
	share   *limit.Shares[netip.Prefix]
}

func newLine(places int) line {
	return line{make(chan *waiter, places), limit.NewShares[netip.Prefix](places)}
}

// newQueue returns one of so many places for each of the two kinds. A request takes one for each placeBytes that it
// has begun.
func newQueue(places, placeBytes int) *queue {
	return &queue{placeBytes: placeBytes, confirmations: newLine(places), others: newLine(places)}
}

// put has a request wait, and reports whether there is room for it. It is not called after close.
func (q *queue) put(c *call, confirmation bool) bool {
	w := &waiter{call: c, since: time.Now(), places: 1 + max(0, c.Size()-1)/q.placeBytes}
	l := &q.others
	if confirmation {
		l = &q.confirmations
	}
	if !l.share.Acquire(c.source.Key(), w.places) {
		return false
	}
	l.waiting <- w // never blocks: there is one for each place
	return true
}

// each calls work for what waits and what comes, until the queue is closed and empty. Any number of goroutines may
// call it.
func (q *queue) each(work func(*waiter)) {
	take := func(l *line, w *waiter) {
		l.share.Release(w.source.Key(), w.places)
		work(w)
	}
	confirmations, others := q.confirmations.waiting, q.others.waiting
	for confirmations != nil || others != nil {
		select { // where both wait, one of them by chance
		case w, open := <-confirmations:
			if !open {
				confirmations = nil
				continue
			}
			take(&q.confirmations, w)
		case w, open := <-others:
			if !open {
				others = nil
				continue
			}
			take(&q.others, w)
		}
	}
}

// close ends what each returns once it is empty.
func (q *queue) close() {
	close(q.confirmations.waiting)
	close(q.others.waiting)
}

// len returns how many wait.
func (q *queue) len() int { return len(q.confirmations.waiting) + len(q.others.waiting) }
