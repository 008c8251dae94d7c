package store

import (
	"context"
	"slices"
	"sync"
	"time"

	"muster/provisioner"
)

// maxHandedOver bounds what one who follows has not taken yet: six times what
// comes between two beats at the highest rate, 2 MB. What does not fit is found in
// the stream.
const maxHandedOver = 8192

// A written is a record that this process has written, at the sequence with which
// it was acknowledged.
type written struct {
	brief    provisioner.Brief
	sequence uint64
}

// handovers are the queues of those in this process who follow the records, for
// what the process itself writes. The zero value is ready; it is safe for
// concurrent use.
type handovers struct {
	mu     sync.Mutex
	queues []*handover // guarded by mu
}

// A handover is the queue of one of them.
type handover struct {
	wake chan struct{} // has room for one: what is in the queue is wanted at once

	mu      sync.Mutex
	items   []written // guarded by mu
	added   uint64    // guarded by mu: how many ever came
	taken   uint64    // guarded by mu: how many of them had come at the last take
	applied uint64    // guarded by mu: how many of them count
	spare   []written // the room of what was taken before; only touched by take
}

// put hands over a record that was acknowledged. It keeps nothing of it but
// texts, and blocks nobody.
func (h *handovers) put(r *provisioner.Record, sequence uint64) {
	h.mu.Lock()
	queues := h.queues
	h.mu.Unlock()
	for _, q := range queues {
		q.put(written{r.Brief(), sequence})
	}
}

func (q *handover) put(w written) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
	if len(q.items) < maxHandedOver {
		q.items = append(q.items, w)
	}
}

// take returns what was handed over since the last call. It is good until the next
// call.
func (q *handover) take() []written {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.spare) // the texts
	q.taken = q.added
	q.items, q.spare = q.spare[:0], q.items
	return q.spare
}

// done says that what was taken last counts.
func (q *handover) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.applied = q.taken
}

// settle waits until all counts that has been handed over.
func (q *handover) settle(ctx context.Context) error {
	q.mu.Lock()
	want := q.added
	q.mu.Unlock()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		q.mu.Lock()
		applied := q.applied
		q.mu.Unlock()
		if applied >= want {
			return nil
		}
		select {
		case q.wake <- struct{}{}:
		default: // it was woken already
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Settle waits until what this process has written is known to all who follow the records with [Store.FollowRecords]: a
// list that is made then is not older than an order before it.
func (s *Store) Settle(ctx context.Context) error {
	s.handovers.mu.Lock()
	queues := s.handovers.queues
	s.handovers.mu.Unlock()
	for _, q := range queues {
		if err := q.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open adds a queue; what is written from now on comes to it.
func (h *handovers) open() *handover {
	q := &handover{wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queues = append(slices.Clone(h.queues), q) // put may be going through the old ones
	return q
}

// close takes a queue away.
func (h *handovers) close(q *handover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queues = slices.DeleteFunc(slices.Clone(h.queues), func(other *handover) bool { return other == q })
}
