package provisioner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Cloned is on the record of an identity that two live machines speak for: a
// copied disk, or a key that was stolen. It goes when the identity changes
// hands: by a grant or a one-time token, or when it is enrolled anew after a
// retirement. Until then it is noticed once. Policies see it as input.node.cloned.
type Cloned struct {
	// Machines are the two that spoke in turn.
	Machines [2]Machine `json:"machines"`

	At time.Time `json:"at"` // when it was noticed
}

// changesHands reports whether a certificate on this ground gives the identity
// to a machine that did not have it: what was noticed of the one before is not
// about this one.
func (r Reason) changesHands() bool {
	return r == ReasonNew || r.handsOver()
}

// cloned reports whether the attempt is for a cloned identity, and leaves it in
// the same hands.
func (a *attempt) cloned() bool {
	return a.record != nil && a.record.Cloned != nil && !a.reason.changesHands()
}

// A Machine is what is known of one that speaks for an identity.
type Machine struct {
	Boot string `json:"boot"` // boot instance: differs after each start of the agent

	// Address is where its broker sees it, by what the node was told. Empty if it did not say.
	Address string `json:"address,omitempty"`
}

func (m Machine) String() string {
	if m.Address == "" {
		return "boot instance " + m.Boot
	}
	return "boot instance " + m.Boot + " at " + m.Address
}

const (
	// cloneGrace is how long after a new boot instance an earlier one may still
	// be heard: requests and events sent before a reboot, which were on their way
	// or in a queue. A request is worked on for 30 s at most.
	cloneGrace = time.Minute

	maxBoots    = 4       // remembered per identity: of more machines with one key, any two give it away
	maxTracked  = 1 << 18 // identities remembered, of 200 bytes each; past it any one is forgotten
	maxBootName = 64      // bytes; what requests may have (package wire)
)

// A sighting is a machine that spoke for an identity.
type sighting struct {
	Machine

	first, last time.Time
}

// boots remembers which boot instances spoke for each identity, in this
// process. A machine that starts again never uses its earlier boot instance
// again: so one that speaks, then another, then the first again are two live
// machines. The zero value is ready.
type boots struct {
	mu   sync.Mutex
	seen map[wire.Identity][]sighting // guarded by mu; in the order of their first
}

// see takes in that a machine spoke, and returns the one that came up
// after it and beside which it cannot have outlived a reboot, if there is one.
// Both are forgotten then: what they say is the nodes' word, and must not cost more
// than one look at the record in [cloneGrace].
func (b *boots) see(id wire.Identity, m Machine, now time.Time) (other sighting, cloned bool) {
	if m.Boot == "" || len(m.Boot) > maxBootName {
		return sighting{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[wire.Identity][]sighting)
	}
	all := b.seen[id]
	i := slices.IndexFunc(all, func(s sighting) bool { return s.Boot == m.Boot })
	if i < 0 {
		if all == nil && len(b.seen) >= maxTracked {
			for some := range b.seen {
				delete(b.seen, some)
				break
			}
		}
		if len(all) == maxBoots {
			all = slices.Delete(all, 0, 1)
		}
		b.seen[id] = append(all, sighting{Machine: m, first: now, last: now})
		return sighting{}, false
	}
	all[i].last = now
	for _, later := range all[i+1:] {
		if now.Sub(later.first) > cloneGrace {
			delete(b.seen, id)
			return later, true
		}
	}
	return sighting{}, false
}

// Heard takes in that a node in the fleet spoke: which machine, and the
// serial of the certificate that it uses, as its lifecycle events say. The
// identity is the broker's word, the rest the node's. Every process hears every
// node. It returns quickly unless two machines speak for one identity; then it
// puts that on record and reports it, and ctx bounds that.
//
// A machine that an identity was taken from, by a grant, speaks until its successor has
// confirmed, and is no clone. Every step may be the last: the pattern is seen again with a
// later word of either machine, and what is on record is not written again.
func (p *Provisioner) Heard(ctx context.Context, id wire.Identity, m Machine, serial string) {
	other, cloned := p.boots.see(id, m, p.cfg.Now())
	if !cloned {
		return
	}
	owner := func(r *Record) bool {
		return slices.ContainsFunc([]*Issued{r.Current, r.Next}, func(i *Issued) bool {
			return i != nil && i.Serial == serial && slices.Contains(r.Lineage, i.KeyHash)
		})
	}
	for range maxRounds {
		r, after, err := p.cfg.Store.Record(ctx, id)
		if err != nil || r == nil || r.Cloned != nil || r.State == StateRevoked || r.State == StateRetired ||
			!owner(r) || other.last.Before(r.OwnedSince) {
			return
		}
		next := *r
		next.Cloned = &Cloned{Machines: [2]Machine{other.Machine, m}, At: p.now()}
		next.Attempt, next.UpdatedAt = wire.NewID(), next.Cloned.At
		next.keep(r, next.UpdatedAt)
		err = p.records.publish(ctx, &next, after, nil)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			p.cfg.Log.WarnContext(ctx, "clones not put on record", "node", id, "code", CodeOf(err), "err", err)
			return
		}
		e := events.Event{
			Type:    events.Cloned,
			Time:    next.Cloned.At,
			Node:    string(id),
			Cause:   other.String() + " and " + m.String(),
			Attempt: next.Attempt,
		}
		if r.Current != nil {
			e.Serial = r.Current.Serial
		}
		p.cfg.Emit(e)
		p.cfg.Log.ErrorContext(ctx, "two live machines use one key", "node", id, "serial", e.Serial, "err", e.Cause)
		return
	}
}
