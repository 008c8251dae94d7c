package store

import (
	"sync"

	"muster/provisioner"
	"muster/provisioner/trust"
)

// maxOwnRecords is a second of writes at the highest rate; further records are read from the stream.
const maxOwnRecords = 8192

type ownRecord struct {
	brief    provisioner.Brief
	sequence uint64
}

// ownRecords queues the records of this process for the follower. Reading them from the stream was most of the cost of
// listing nodes.
type ownRecords struct {
	deliver func(*provisioner.Brief, trust.Revision)

	mu    sync.Mutex
	items []ownRecord // guarded by mu

	drainMu   sync.Mutex
	spare     []ownRecord         // guarded by drainMu: memory for items
	sequences map[uint64]struct{} // guarded by drainMu: drained records after position
	position  uint64              // guarded by drainMu: the follower has every record up to here
}

// put keeps only strings of the record.
func (q *ownRecords) put(r *provisioner.Record, sequence uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) < maxOwnRecords {
		q.items = append(q.items, ownRecord{r.Brief(), sequence})
	}
}

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
	clear(items)
	q.spare = items
}

// advance moves position past drained records.
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

// skipTo moves position to a sequence that was read.
func (q *ownRecords) skipTo(sequence uint64) (own bool) {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	q.position = max(q.position, sequence)
	_, own = q.sequences[sequence]
	delete(q.sequences, sequence)
	return own
}

// Settle delivers all own records to the follower, so that a list made afterwards shows every earlier order.
func (s *RecordStore) Settle() {
	if q := s.own.Load(); q != nil {
		q.drain()
	}
}
