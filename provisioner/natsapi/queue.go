package natsapi

import (
	"net/netip"
	"time"

	"muster/internal/limit"
)

// A waiter is a queued request.
type waiter struct {
	*call
	queue  *sharedQueue
	since  time.Time // monotonic
	places int
}

// A queue has the requests that wait for workers. Confirmations wait separately, so that neither kind delays the
// other.
type queue struct {
	placeBytes              int // size of a request per place
	confirmations, requests sharedQueue
}

// A sharedQueue is bounded and shared by source addresses, so that one address cannot fill it.
type sharedQueue struct {
	waiting chan *waiter
	share   *limit.Shares[netip.Prefix]
}

func newSharedQueue(places int) sharedQueue {
	return sharedQueue{make(chan *waiter, places), limit.NewShares[netip.Prefix](places)}
}

// newQueue returns a queue with that many places for each kind. A request takes one for each placeBytes or part.
func newQueue(places, placeBytes int) *queue {
	return &queue{placeBytes: placeBytes, confirmations: newSharedQueue(places), requests: newSharedQueue(places)}
}

// put returns false if there is no room. It must not be called after close.
func (q *queue) put(c *call, confirmation bool) bool {
	w := &waiter{
		call:   c,
		queue:  &q.requests,
		since:  time.Now(),
		places: 1 + max(0, c.Size()-1)/q.placeBytes,
	}
	if confirmation {
		w.queue = &q.confirmations
	}
	if !w.queue.share.Acquire(c.source.Key(), w.places) {
		return false
	}
	w.queue.waiting <- w // never blocks: the share guarantees room
	return true
}

// each calls work for each request until the queue is closed and empty. It may be called concurrently.
func (q *queue) each(work func(*waiter)) {
	confirmations, requests := q.confirmations.waiting, q.requests.waiting
	for confirmations != nil || requests != nil {
		var w *waiter // nil from a closed channel
		select {      // random if both are ready
		case w = <-confirmations:
			if w == nil {
				confirmations = nil
				continue
			}
		case w = <-requests:
			if w == nil {
				requests = nil
				continue
			}
		}
		w.queue.share.Release(w.source.Key(), w.places)
		work(w)
	}
}

func (q *queue) close() {
	close(q.confirmations.waiting)
	close(q.requests.waiting)
}

func (q *queue) len() int { return len(q.confirmations.waiting) + len(q.requests.waiting) }
