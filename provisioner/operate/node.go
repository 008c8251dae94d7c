package operate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/provisioner/orders"
	"muster/provisioner/waiting"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// Nodes are the nodes on record.
type Nodes struct {
	*base

	command func(ctx context.Context, c wire.Command, key []byte) (*wire.CommandAccepted, error)
	choria  ChoriaFleet // nil without a gateway

	oneTime sync.Mutex // parallel orders about one name would conflict too often
}

// How long a grant can be used.
const (
	DefaultGrantTTL = time.Hour      // enough to walk to the machine
	MaxGrantTTL     = 24 * time.Hour // enough to ship a machine; a forgotten grant lets another key in
)

// A GrantOrder describes a grant.
type GrantOrder struct {
	// ID identifies a repeated order; empty: a new one.
	ID string
	// KeyHash is the only key that may take the name: 64 hex digits, or 8 or more of a waiting key. Empty: any key, if
	// no key waits for the name.
	KeyHash string
	TTL     time.Duration // at most [MaxGrantTTL]; 0 is [DefaultGrantTTL]
	Seen    provisioner.Precondition
}

func (o *GrantOrder) check(c trust.Cause) error {
	err := errors.Join(c.Check(), checkOrderID(o.ID), CheckKeyPrefix(o.KeyHash))
	if o.TTL < time.Minute || o.TTL > MaxGrantTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", o.TTL, MaxGrantTTL))
	}
	return wrong(err)
}

// Grant lets one other key take the identity, once. It replaces an earlier grant by compare-and-set: a late order does
// not undo a newer one. An order with the same id returns the same grant.
//
// The error is [provisioner.ErrNoRecord], or [trust.ErrState] if the identity is free or revoked, if keys wait for it
// and the order names none, if this id's grant was used and replaced, or if another operator grants meanwhile.
func (n *Nodes) Grant(ctx context.Context, id wire.Identity, o GrantOrder, c trust.Cause) (_ *orders.Grant, err error) {
	defer about(&err, "grant %q", id)
	o.TTL = cmp.Or(o.TTL, DefaultGrantTTL)
	if err := o.check(c); err != nil {
		return nil, err
	}
	record, at, err := n.store.Record(ctx, id)
	if err == nil {
		err = errors.Join(n.grantable(record), n.judge(id))
	}
	if err != nil {
		return nil, err
	}
	newest, after, err := n.logs.Grant(id)
	if err != nil && o.ID != "" { // an unreadable grant is replaced
		return nil, err
	}
	if o.ID == "" {
		o.ID = wire.NewID()
	} else if newest != nil && newest.ID == o.ID {
		return newest, nil
	} else if err := n.grantUsed(ctx, id, o.ID); err != nil {
		return nil, err
	}
	if err := o.Seen.Check(record, at); err != nil {
		return nil, err
	}
	if o.KeyHash, err = n.grantedKey(ctx, id, o.KeyHash); err != nil {
		return nil, err
	}
	w, _, err := n.store.Waiter(ctx, id, o.KeyHash)
	if over := string(record.Protocol); err == nil && w != nil && w.Protocol != over {
		return nil, fmt.Errorf("%w: the name is enrolled over protocol %s, and the key asks over %s: a grant has no "+
			"effect, `muster node retire` frees the name", trust.ErrState, record.Protocol,
			provisioner.Protocol(w.Protocol))
	}
	now := n.now()
	g := &orders.Grant{
		ID:        o.ID,
		Identity:  id,
		KeyHash:   o.KeyHash,
		At:        now,
		Owned:     record.OwnedSince,
		ExpiresAt: now.Add(o.TTL),
		By:        c.By,
		Why:       c.Why,
	}
	e := n.event(events.Granted, c)
	e.Node = string(id)
	if _, err := n.logs.Grants.Put(ctx, g.LogKey(), g, after); err != nil {
		return nil, changedMeanwhile(err)
	}
	n.report(ctx, "takeover granted", e, "node", id, "until", g.ExpiresAt)
	return g, nil
}

func (n *Nodes) grantable(r *provisioner.Record) error {
	if r == nil {
		return fmt.Errorf("%w: a new name needs no grant: approve the right machine's key once it waits",
			provisioner.ErrNoRecord)
	}
	revocations := n.provisioner.Revocations()
	switch {
	case r.State == provisioner.StateRetired && !r.Awaits():
		return fmt.Errorf("%w: it is retired: approve the right machine's key once it waits", trust.ErrState)
	case r.State == provisioner.StateRevoked || revocations.Outstanding(r.Identity, r.AppliedRevocation()) != nil:
		return fmt.Errorf("%w: it is revoked, retire it first", trust.ErrState)
	}
	return nil
}

// grantedKey returns the whole hash of a grant's key, "" for any key. One of several waiting keys may be a thief's.
func (n *Nodes) grantedKey(ctx context.Context, id wire.Identity, key string) (string, error) {
	keys := &Keys{base: n.base}
	switch {
	case key == "":
		waiting, err := keys.Waiting(ctx, id)
		if err != nil || len(waiting) == 0 {
			return "", err
		}
		return "", fmt.Errorf("%w: a grant without a key would give the name to the first key that asks, and %s: "+
			"compare with the key in the log of the right machine, then add its --fingerprint; "+
			"`muster node reject %s --fingerprint KEY` keeps a key out", trust.ErrState, describeKeys(waiting), id)
	case len(key) < sha256.Size*2:
		w, err := keys.waiterNamed(ctx, Named(id, key))
		if err != nil {
			return "", err
		}
		key = w.KeyHash
	}
	if by := n.provisioner.Revocations().Key(key); by != nil {
		return "", fmt.Errorf("%w: the key: %w", trust.ErrState, by.Err())
	}
	if by := n.logs.Answers.Rejection(id, key); by != nil {
		return "", fmt.Errorf("%w: the key was rejected, %s; `muster node forget %s --fingerprint %s` lifts that",
			trust.ErrState, by.Source(), id, key)
	}
	return key, nil
}

// maxDescribed bounds a message; `muster node pending` lists all keys.
const maxDescribed = 5

func describeKeys(waiting []*waiting.Key) string {
	var keys []string
	for _, w := range waiting[:min(maxDescribed, len(waiting))] {
		keys = append(keys, fmt.Sprintf("key %s from %s asked from %s to %s", shortKey(w.KeyHash),
			cmp.Or(w.Source, "an unknown address"), w.Since.UTC().Format(time.RFC3339),
			w.LastAsked.UTC().Format(time.RFC3339)))
	}
	if more := len(waiting) - len(keys); more > 0 {
		keys = append(keys, fmt.Sprintf("%d more keys asked", more))
	}
	return strings.Join(keys, ", ")
}

func (n *Nodes) grantUsed(ctx context.Context, id wire.Identity, grant string) error {
	history, _, err := n.store.History(ctx, id)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(history, func(r provisioner.Revised) bool { return r.Record.Grant == grant }) {
		return fmt.Errorf("%w: this grant was used, and another one was given since", trust.ErrState)
	}
	return nil
}
