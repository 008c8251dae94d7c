package natsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"runtime"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/provisioner"
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

// Even a busy reply costs work: the id must be decoded and a sealed request opened. So the replies have their own queue
// and workers, for at most half of the cores. If this queue is full too, there is no reply.

// The queue of busy replies has room for 13,000 requests with 2 KB of facts. A request takes at least 1 KiB.
const (
	maxExcessBytes   = 64 << 20
	excessPlaceBytes = 1 << 10
)

func busyWorkers() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// busy sends a busy reply. If the message cannot be opened, the reply is not sealed.
func (s *Service) busy(ctx context.Context, c *call) {
	defer s.survive(ctx, c.Msg)
	s.cfg.Busy()
	data := c.Data
	if s.cfg.Opener != nil && bytes.HasPrefix(data, sealedPrefix) {
		data, _ = s.open(c) // an error is reported when a later try has room
		s.refund(c)         // the content is not checked here
	}
	var peek struct {
		Body struct {
			ID string `json:"id"`
		} `json:"body"`
	}
	if len(data) <= wire.MaxMessageBytes {
		_ = json.Unmarshal(data, &peek) // likewise
	}
	after := s.backlog.Next
	if s.isApplied(c.Msg) {
		after = s.backlog.Soon
	}
	refusal := (&provisioner.Refusal{Code: wire.CodeBusy, After: after()}).Message()
	s.respond(ctx, c, &wire.Reply{ID: peek.Body.ID, Refusal: refusal})
}
