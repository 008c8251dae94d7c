package provisioner

import (
	"context"
	"slices"
	"sync"

	"muster/internal/wire"
)

// An untold remembers what this process has asked the store to write, was not told that it
// did, and has to tell of if it did: nobody else does, and who asks again finds that nothing
// is left to do. What it remembers ends with the process, as events that wait for the store
// do. The zero value is ready. Safe for concurrent use.
type untold struct {
	mu      sync.Mutex
	records map[wire.Identity][]string // guarded by mu: attempts that may have written the record
	entries map[string]Event           // guarded by mu: by the id of an entry of the log of revocations
}

// record takes in that an attempt may have written the record of an identity.
func (u *untold) record(id wire.Identity, attempt string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.records == nil {
		u.records = make(map[wire.Identity][]string)
	}
	u.records[id] = append(u.records[id], attempt)
}

// open reports whether some attempt may have written the record.
func (u *untold) open(id wire.Identity) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.records[id]) > 0
}

// wrote reports whether the record, which is on disk, is by one of these attempts. It says so
// once. None of the others can have written it then, or will.
func (u *untold) wrote(r *Record) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	ours := slices.Contains(u.records[r.Identity], r.Attempt)
	if ours {
		delete(u.records, r.Identity)
	}
	return ours
}

// forget takes in that none of these attempts has written the record, or will.
func (u *untold) forget(id wire.Identity) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.records, id)
}

// entry takes in that an entry may be in the log of revocations, or will be, and what
// there is to tell of it then.
func (u *untold) entry(id string, e Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.entries == nil {
		u.entries = make(map[string]Event)
	}
	u.entries[id] = e
}

// take returns the events of the entries that are in the log by now, each once.
func (u *untold) take(stored func(id string) bool) []Event {
	u.mu.Lock()
	defer u.mu.Unlock()
	var events []Event
	for id, e := range u.entries {
		if stored(id) {
			events = append(events, e)
			delete(u.entries, id)
		}
	}
	return events
}

// tellRevoked emits the event of an entry that is in the log of revocations.
func (p *Provisioner) tellRevoked(ctx context.Context, e Event) {
	p.cfg.Emit(e)
	if e.Type == EventTokenRevoked {
		p.cfg.Log.InfoContext(ctx, "token revoked", "token_id", e.Token, "by", e.By, "why", e.Why)
		return
	}
	p.cfg.Log.InfoContext(ctx, "node retired", "node", e.Node, "by", e.By, "why", e.Why)
}

// tellKeptOut emits the event of a record that is on disk, which an entry has been written to.
func (p *Provisioner) tellKeptOut(ctx context.Context, r *Record) {
	event := EventRevoked
	if r.State == StateRetired {
		event = EventRetired
	}
	p.cfg.Emit(Event{Type: event, Time: p.moment(), Node: string(r.Identity), By: r.Operator.By, Why: r.Operator.Why, Attempt: r.Attempt})
	p.cfg.Log.InfoContext(ctx, "node kept out", "node", r.Identity, "state", r.State, "by", r.Operator.By, "why", r.Operator.Why, "revision", uint64(r.RevokedThrough))
}
