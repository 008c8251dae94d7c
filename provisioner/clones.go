package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// errCloned says that two live machines use one identity, and that the policy
// lets neither in.
var errCloned = errors.New("two live machines use this identity's key, and the policy refuses them")

// Cloned is on the record of an identity that two live machines speak for: a
// copied disk, or a key that was stolen. It goes when the identity changes
// hands: by a grant or a one-time token, or when it is enrolled anew after a
// retirement. Until then it is noticed once, whoever else speaks for it.
type Cloned struct {
	// Boots are the boot instances that spoke in turn, the one that was first
	// heard of first.
	Boots [2]string `json:"boots"`

	At time.Time `json:"at"` // when it was noticed

	// Refused says that the policy denied a cloned node when it was noticed:
	// neither machine is admitted to the fleet.
	Refused bool `json:"refused"`

	// Policy is the digest of the policy that was asked.
	Policy string `json:"policy"`
}

// clonesRefused reports whether the machines of a cloned identity are kept out.
func (r *Record) clonesRefused() bool { return r != nil && r.Cloned != nil && r.Cloned.Refused }

// changesHands reports whether a certificate on this ground gives the identity
// to a machine that did not have it: what was noticed of the one before is not
// about this one.
func (r Reason) changesHands() bool {
	return r == ReasonNew || r == ReasonGrant || r == ReasonOneTimeToken
}

// cloned reports whether the attempt is for a cloned identity, and leaves it in
// the same hands.
func (a *attempt) cloned() bool {
	return a.record != nil && a.record.Cloned != nil && !a.reason.changesHands()
}

// own takes in on what ground an offer is made: whether the identity changes
// hands with it.
func (r *Record) own(reason Reason, now time.Time) {
	if reason.changesHands() {
		if r.clonesRefused() && r.Current != nil {
			// It stays until the new machine has confirmed, and lets neither of the two in.
			c := *r.Current
			c.Barred = true
			r.Current = &c
		}
		r.OwnedSince, r.Cloned = now, nil
	}
	if r.clonesRefused() {
		// The policy has let it in all the same: it has changed its mind.
		c := *r.Cloned
		c.Refused = false
		r.Cloned = &c
	}
}

const (
	// cloneGrace is how long after a new boot instance an earlier one may still
	// be heard: requests and events sent before a reboot, which were on their way
	// or in a queue. A request is worked on for 30 s at most.
	cloneGrace = time.Minute

	// cloneLook is how long after one look at the record of an identity whose
	// events give it away as cloned the next is not taken: what the events say is
	// the node's word, and all nodes share one goroutine. Chosen.
	cloneLook = time.Minute

	maxBoots    = 4       // remembered per identity: of more machines with one key, any two give it away
	maxTracked  = 1 << 18 // identities remembered, of 200 bytes each; past it any one is forgotten
	maxBootName = 64      // bytes; what requests may have (package wire)
)

// A sighting is a boot instance that spoke for an identity.
type sighting struct {
	boot        string
	first, last time.Time
}

// boots remembers which boot instances spoke for each identity, in this
// process. A machine that starts again never uses its earlier boot instance
// again: so one that speaks, then another, then the first again are two live
// machines. The zero value is ready.
type boots struct {
	mu     sync.Mutex
	seen   map[wire.Identity][]sighting // guarded by mu; in the order of their first
	looked map[wire.Identity]time.Time  // guarded by mu: when mayLook last said so
}

// see takes in that a boot instance spoke, and returns the one that came up
// after it and beside which it cannot have outlived a reboot, if there is one.
func (b *boots) see(id wire.Identity, boot string, now time.Time) (other sighting, cloned bool) {
	if boot == "" || len(boot) > maxBootName {
		return sighting{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = make(map[wire.Identity][]sighting)
	}
	all := b.seen[id]
	i := slices.IndexFunc(all, func(s sighting) bool { return s.boot == boot })
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
		b.seen[id] = append(all, sighting{boot: boot, first: now, last: now})
		return sighting{}, false
	}
	all[i].last = now
	for _, later := range all[i+1:] {
		if now.Sub(later.first) > cloneGrace {
			return later, true
		}
	}
	return sighting{}, false
}

// mayLook reports whether the record of an identity that is cloned by the word
// of its nodes may be looked at: once in [cloneLook], however often and whatever
// they say.
func (b *boots) mayLook(id wire.Identity, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A clock that went back must not keep anybody waiting for it.
	if last, ok := b.looked[id]; ok && now.Sub(last).Abs() < cloneLook {
		return false
	}
	if b.looked == nil {
		b.looked = make(map[wire.Identity]time.Time)
	}
	if len(b.looked) >= maxTracked {
		for some := range b.looked {
			delete(b.looked, some)
			break
		}
	}
	b.looked[id] = now
	return true
}

// forget drops one boot instance, or all of an identity if boot is empty.
func (b *boots) forget(id wire.Identity, boot string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if boot == "" {
		delete(b.seen, id)
		return
	}
	b.seen[id] = slices.DeleteFunc(b.seen[id], func(s sighting) bool { return s.boot == boot })
}

// Clones notices that two live machines use one identity. It is safe for concurrent use.
type Clones struct {
	*Provisioner

	boots boots
}

// Heard takes in that a node in the fleet spoke: its boot instance, and the
// serial of the certificate that it uses, as its lifecycle events say. The
// identity is the broker's word, the rest the node's. Every process hears every
// node. It returns quickly unless two machines speak for one identity; then it
// reads and perhaps writes a record, once in [cloneLook], and ctx bounds that.
func (c *Clones) Heard(ctx context.Context, id wire.Identity, boot, serial string) {
	now := c.cfg.Now()
	other, cloned := c.boots.see(id, boot, now)
	if !cloned || !c.boots.mayLook(id, now) {
		return
	}
	owner := func(r *Record) bool {
		return slices.ContainsFunc([]*Issued{r.Current, r.Next}, func(i *Issued) bool {
			return i != nil && i.Serial == serial && slices.Contains(r.Lineage, i.KeyHash)
		})
	}
	c.cloned(ctx, id, boot, other, owner)
}

// heard takes in that an attempt was granted: its key is the identity's, and it is
// no recorded one, unless it came in plain. The caller holds the identity's lock.
func (a *attempt) heard(ctx context.Context) {
	if a.reason.changesHands() {
		a.Clones.boots.forget(a.identity, "")
	}
	if !a.renewal && (!a.source.Sealed || a.token.Limits.Seal == "") {
		// Whoever listened has the token and the certificate request, and can send
		// them again with whatever boot instance: nothing in it proves the key anew. In
		// the fleet the machine speaks for itself.
		return
	}
	other, cloned := a.Clones.boots.see(a.identity, a.request.Boot, a.cfg.Now())
	if cloned {
		a.Clones.cloned(ctx, a.identity, a.request.Boot, other, func(*Record) bool { return true })
	}
}

// cloned puts two machines with one identity on record, says so once, and
// drops them if the policy wants neither. owner reports whether the one that
// spoke belongs to the record: a machine that an identity was taken from, by a
// grant, speaks until its successor has confirmed, and is no clone.
//
// Every step may be the last: the pattern is seen again with a later word of
// either machine, what is on record is not written again, and connections that
// are gone are not dropped again.
//
// What is on record stands for every pair: boot instances are the node's word,
// and one that makes new ones up would have a revision written and a report made
// for each. Only another policy is asked again.
func (c *Clones) cloned(ctx context.Context, id wire.Identity, boot string, other sighting, owner func(*Record) bool) {
	for range maxRounds {
		r, after, err := c.cfg.Store.Record(ctx, id)
		if err != nil {
			_ = storeCode(err) // whoever watches the store says so; the clones will speak again
			return
		}
		if r == nil || r.State == StateRevoked || r.State == StateRetired || !owner(r) {
			c.boots.forget(id, boot)
			return
		}
		if other.last.Before(r.OwnedSince) {
			c.boots.forget(id, other.boot) // of an owner before
			return
		}
		digest := c.cfg.Policy.Digest()
		known := r.Cloned != nil // of this owner: see own
		if known && (r.Cloned.Refused || r.Cloned.Policy == digest) {
			c.dropClones(ctx, id, r)
			return
		}
		found := &Cloned{Boots: [2]string{boot, other.boot}, At: c.now()}
		if known {
			*found = *r.Cloned
		}
		found.Refused, found.Policy, err = c.refusesClones(ctx, r)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			// Without a word from the policy the machines stay as they are, and it is
			// asked again when they speak again.
			if ctx.Err() == nil { // what was broken off has not failed
				c.policy.failed(ctx, c.cfg.Alarms, digest, err)
			}
			return
		}
		next := *r
		next.Cloned, next.Attempt, next.UpdatedAt = found, wire.NewID(), c.now()
		next.keep(r, next.UpdatedAt)
		err = c.records.publish(ctx, &next, after, nil)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			c.cfg.Log.WarnContext(ctx, "clones not put on record", "node", id, "code", CodeOf(err), "err", err)
			return
		}
		if !known {
			c.sayCloned(ctx, id, &next)
		}
		c.dropClones(ctx, id, &next)
		return
	}
}

// sayCloned reports clones that are now on record.
func (c *Clones) sayCloned(ctx context.Context, id wire.Identity, r *Record) {
	cause := fmt.Sprintf("boot instances %s", strings.Join(r.Cloned.Boots[:], " and "))
	e := events.Event{Type: events.Cloned, Time: r.Cloned.At, Node: string(id), Cause: cause, Policy: r.Cloned.Policy, Attempt: r.Attempt}
	if r.Cloned.Refused {
		e.Code = wire.CodeIdentityCloned
	}
	if r.Current != nil {
		e.Serial = r.Current.Serial
	}
	c.cfg.Emit(e)
	c.cfg.Log.ErrorContext(ctx, "two live machines use one key", "node", id, "code", e.Code, "serial", e.Serial, "err", cause)
}

// dropClones drops the connections of clones that are kept out.
func (c *Clones) dropClones(ctx context.Context, id wire.Identity, r *Record) {
	if r.clonesRefused() {
		c.cfg.Kick(ctx, id)
	}
}

// refusesClones asks the policy about what is on record, without facts: once as
// it is, and once as a cloned node. It wants neither machine if being cloned
// gives it a reason to deny that it would not have otherwise. The error is errAgain if
// another policy was loaded in between: what the two say tells nothing.
func (c *Clones) refusesClones(ctx context.Context, r *Record) (refused bool, policy string, err error) {
	in := &policies.Input{
		Identity: string(r.Identity), Token: policies.Token{ID: string(r.Token), Site: string(r.Site)},
		Node:  policies.Node{State: string(r.State), Reason: string(ReasonReplay), ProvisionedAt: r.ProvisionedAt},
		Allow: c.logs.Allowances.Match(r.Identity, c.now()).Input(), Source: policies.Source{Address: r.Source, Site: string(c.cfg.Site)},
		Provisioner: policies.Provisioner{Site: string(c.cfg.Site), Version: c.cfg.Version},
		Time:        c.now(),
	}
	if r.Current != nil {
		in.Node.Serial, in.Node.ExpiresAt = r.Current.Serial, r.Current.NotAfter
		in.CSR.Key.Hash = r.Current.KeyHash
	}
	before, err := c.cfg.Policy.Decide(ctx, in)
	if err != nil {
		return false, "", err
	}
	in.Node.Cloned = true
	after, err := c.cfg.Policy.Decide(ctx, in)
	if err != nil {
		return false, "", err
	}
	if before.Digest != after.Digest {
		return false, "", errAgain
	}
	refused = after.Verdict() == policies.VerdictDeny && (before.Verdict() != policies.VerdictDeny ||
		slices.ContainsFunc(after.Deny, func(why string) bool { return !slices.Contains(before.Deny, why) }))
	return refused, after.Digest, nil
}
