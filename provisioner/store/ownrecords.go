package store

import (
	"sync"

	"muster/provisioner"
	"muster/provisioner/trust"
)

// maxOwnRecords bounds the records of one queue that were not taken yet, at some 400 bytes each: what a process writes
// in a second at the highest rate. What does not fit is read from the stream.
const maxOwnRecords = 8192

// written is a record that this process has written, at the sequence with which it was acknowledged.
type ownRecord struct {
	brief    provisioner.Brief
	sequence uint64
}

// An ownRecords is the queue of the follower of the records, for those that its own process writes. To have these
// delivered and decoded was most of what listing nodes cost.
type ownRecords struct {
	deliver func(*provisioner.Brief, trust.Revision)

	mu    sync.Mutex
	items []ownRecord // guarded by mu

	drainMu   sync.Mutex
	spare     []ownRecord         // guarded by taking: the room of the items that were taken before
	sequences map[uint64]struct{} // guarded by taking: sequences after through that were taken
	position  uint64              // guarded by taking: the follower has had every record up to this sequence
}

// put adds a record that was acknowledged. It keeps only texts of it.
func (q *ownRecords) put(r *provisioner.Record, sequence uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) < maxOwnRecords {
		q.items = append(q.items, ownRecord{r.Brief(), sequence})
	}
}

// take gives the follower what is in the queue. When it returns, the follower has had all that was put before.
func (q *ownRecords) drain() {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	q.mu.Lock()
	items := q.items
	q.items = q.spare[:0]
	q.mu.Unlock()
	for i := range items {
		q.deliver(&items[i].brief, trust.Revision(items[i].sequence))
		if sequence := items[i].sequence; sequence > q.position {
			q.sequences[sequence] = struct{}{}
		}
	}
	clear(items) // the texts
	q.spare = items
}

// passed moves through past own records, and returns it.
func (q *ownRecords) advance() uint64 {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	for {
		if _, own := q.sequences[q.position+1]; !own {
			return q.position
		}
		q.position++
		delete(q.sequences, q.position)
	}
}

// pass moves through to a sequence that was read, and reports whether its record is an own one.
func (q *ownRecords) skipTo(sequence uint64) (own bool) {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	q.position = max(q.position, sequence)
	_, own = q.sequences[sequence]
	delete(q.sequences, sequence)
	return own
}

// Settle returns when all that this process has written is known to the follower of records (see
// [Store.FollowRecords]): a list that is made then is not older than an order before it.
func (s *RecordStore) Settle() {
	if q := s.own.Load(); q != nil {
		q.drain()
	}
}
