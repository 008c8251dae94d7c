package provisioner

import (
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

const (
	// maxRecent is how many records are remembered, of about 2 kB each; past it all are forgotten,
	// and the nodes in hand cost a read. Nodes confirm within seconds, and 140,000 a minute are
	// 2,300 a second.
	maxRecent = 8192

	// recentFor is how long a record is remembered. Chosen: a node that confirms
	// later has had to write a large configuration, and a read does not matter.
	recentFor = 30 * time.Second
)

// recent remembers the records with an offer that this process has just
// written, each at its revision, for the confirmation that is to come: it is
// decided without a read then.
//
// What it says may be out of date at any time: other processes write, too. So a
// remembered record is good for one thing only, a write under compare-and-set
// on its revision. If the write is made, nobody had written since, and it is
// the same write that it would have been after a read; else it is decided again
// on what is read. Whatever else would come of a remembered record, a refusal or
// an answer without a write, is decided on one that is read.
//
// A revision names one content in a store that only goes forward. One that is
// restored from a backup does not: that no process outlives that with its
// memory, [recentFor] sees to as well. The zero value is ready.
type recent struct {
	mu   sync.Mutex
	kept map[wire.Identity]remembered // guarded by mu
}

// remembered is a record that must not be changed.
type remembered struct {
	record   *Record
	revision trust.Revision
	at       time.Time
}

// remember takes in a record that was written at now, in place of an earlier
// one. Those without an offer are forgotten: nobody confirms them.
func (m *recent) remember(r *Record, revision trust.Revision, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Next == nil {
		delete(m.kept, r.Identity)
		return
	}
	if m.kept == nil || len(m.kept) >= maxRecent {
		m.kept = make(map[wire.Identity]remembered)
	}
	m.kept[r.Identity] = remembered{r, revision, now}
}

// take returns the record of id and its revision, and forgets it. It returns nil
// if there is none that was written within [recentFor] before now, or after it: the
// clock may have gone back.
func (m *recent) take(id wire.Identity, now time.Time) (*Record, trust.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.kept[id]
	delete(m.kept, id)
	if !ok || now.Sub(found.at).Abs() > recentFor {
		return nil, 0
	}
	return found.record, found.revision
}
