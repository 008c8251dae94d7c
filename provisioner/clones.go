package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Cloned marks an identity that two live machines use: a copied disk or a stolen key. It stays until the identity gets
// another owner.
type Cloned struct {
	Machines [2]Machine `json:"machines"`

	At time.Time `json:"at"`
}

func (r Reason) changesHands() bool {
	return r == ReasonNew || r.handsOver()
}

func (a *attempt) cloned() bool {
	return a.record != nil && a.record.Cloned != nil && !a.reason.changesHands()
}

// Text describes both machines.
func (c *Cloned) Text() string { return c.Machines[0].String() + ", and " + c.Machines[1].String() }

// A Machine is a host that uses an identity.
type Machine struct {
	Boot string `json:"boot"` // boot instance: new at each start of the agent

	// Address is the node's address as the broker sees it, reported by the node; may be "".
	Address string `json:"address,omitempty"`

	First time.Time `json:"first,omitzero"` // seen by this provisioner
	Last  time.Time `json:"last,omitzero"`
}

func (m Machine) String() string {
	return fmt.Sprintf("boot instance %s at %s, seen from %s to %s", m.Boot, cmp.Or(m.Address, "an unknown address"),
		m.First.UTC().Format(time.RFC3339), m.Last.UTC().Format(time.RFC3339))
}

const (
	// cloneGrace allows messages of an earlier boot to arrive after a reboot.
	cloneGrace = time.Minute

	maxBoots    = 4       // per identity
	maxTracked  = 1 << 18 // identities, 200 bytes each; at the limit an arbitrary one is dropped
	maxBootName = 64
)

// boots has the boot instances of each identity. A machine never returns to an earlier one, so A, B, A means two
// machines.
type boots struct {
	mu   sync.Mutex
	seen map[wire.Identity][]Machine // guarded by mu; sorted by First
}

// observe returns the later machine and the earlier one if that sends again, else nil. It forgets both then, so that a
// lying node costs one read of the record per [cloneGrace].
func (b *boots) observe(id wire.Identity, m Machine, now time.Time) *Cloned {
	if m.Boot == "" || len(m.Boot) > maxBootName {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[wire.Identity][]Machine)
	}
	all := b.seen[id]
	i := slices.IndexFunc(all, func(s Machine) bool { return s.Boot == m.Boot })
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
		m.First, m.Last = now, now
		b.seen[id] = append(all, m)
		return nil
	}
	all[i].Address, all[i].Last = cmp.Or(m.Address, all[i].Address), now
	for _, later := range all[i+1:] {
		if now.Sub(later.First) > cloneGrace {
			delete(b.seen, id)
			return &Cloned{Machines: [2]Machine{later, all[i]}}
		}
	}
	return nil
}

// NoteMachine notes the sender of a node's message. If two machines use the identity, it marks the record. A crash is
// harmless: later messages show the clone again. A machine whose identity another key took over is no clone.
func (p *Provisioner) NoteMachine(ctx context.Context, id wire.Identity, m Machine, serial string) {
	cloned := p.boots.observe(id, m, p.cfg.Now())
	if cloned == nil {
		return
	}
	cloned.At = p.now()
	r, err := p.amend(ctx, id, serial, func(r *Record) bool {
		if r.Cloned != nil || cloned.Machines[0].Last.Before(r.OwnedSince) {
			return false
		}
		r.Cloned = cloned
		return true
	})
	if err != nil {
		p.cfg.Log.WarnContext(ctx, "clone not recorded", "node", id, "code", CodeOf(err), "err", err)
	}
	if r == nil {
		return
	}
	e := events.Event{
		Type:    events.Cloned,
		Time:    r.Cloned.At,
		Node:    string(id),
		Cause:   cloned.Text(),
		Attempt: r.Attempt,
	}
	if r.Current != nil {
		e.Serial = r.Current.Serial
	}
	p.cfg.Emit(e)
	p.cfg.Log.ErrorContext(ctx, "two live machines use one key", "node", id, "serial", e.Serial, "err", e.Cause)
}

// amend writes what change makes of a record, if serial is a certificate of its owner. It returns nil if change is
// false, or the node does not own the name.
func (p *Provisioner) amend(ctx context.Context, id wire.Identity, serial string,
	change func(*Record) bool) (*Record, error) {
	owner := func(r *Record) bool {
		return slices.ContainsFunc([]*Issued{r.Current, r.Next}, func(i *Issued) bool {
			return i != nil && i.Serial == serial && slices.Contains(r.Lineage, i.KeyHash)
		})
	}
	for range maxRounds {
		r, after, err := p.cfg.Store.Record(ctx, id)
		if err != nil || r == nil || r.State == StateRevoked || r.State == StateRetired || !owner(r) {
			return nil, err
		}
		next := *r
		if !change(&next) {
			return nil, nil
		}
		next.Attempt, next.UpdatedAt = wire.NewID(), p.now()
		next.keepSuperseded(r, next.UpdatedAt)
		if err = p.records.publish(ctx, &next, after, nil); err == nil {
			return &next, nil
		}
		if !errors.Is(err, errAgain) {
			return nil, err
		}
	}
	return nil, errAgain
}
