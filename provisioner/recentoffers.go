package provisioner

import (
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

const (
	// of about 2 kB each; at the limit all are dropped. Nodes confirm within seconds, and 140,000 a minute are 2,300
	// a second.
	maxRecent = 8192

	recentFor = 30 * time.Second
)

// recentOffers caches offers that this process has just written, so that the confirmation needs no read. Other
// processes write too, so an entry is good only for a write under compare-and-set on its revision; anything else is
// decided on a record that was read. After a restore a revision may name another record, so no entry may outlive
// [recentFor]. The zero value is ready.
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

// put drops records without an offer, since no confirmation follows.
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

// take removes the record of id, and returns it if it was written within [recentFor]. The clock may have gone back.
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
