package provisioner

import (
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

const (
	// A record takes 2 kB. Nodes confirm within seconds, and 140,000 nodes a minute are 2,300 a second.
	maxRecent = 8192

	recentFor = 30 * time.Second
)

// recentOffers saves confirmations a read. Other processes write too, so an entry is good only for a write under
// compare-and-set. After a restore a revision may belong to another record, so no entry may outlive [recentFor].
type recentOffers struct {
	mu      sync.Mutex
	records map[wire.Identity]remembered // guarded by mu
}

// remembered is a record that must not be changed.
type remembered struct {
	record   *Record
	revision trust.Revision
	at       time.Time
}

func (m *recentOffers) put(r *Record, revision trust.Revision, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Next == nil {
		delete(m.records, r.Identity)
		return
	}
	if m.records == nil || len(m.records) >= maxRecent {
		m.records = make(map[wire.Identity]remembered)
	}
	m.records[r.Identity] = remembered{r, revision, now}
}

// take removes and returns the record of id. Abs: the clock may have been set back.
func (m *recentOffers) take(id wire.Identity, now time.Time) (*Record, trust.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.records[id]
	delete(m.records, id)
	if !ok || now.Sub(found.at).Abs() > recentFor {
		return nil, 0
	}
	return found.record, found.revision
}
