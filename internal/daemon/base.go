package daemon

import (
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// A base is what all parts of a daemon share.
type base struct {
	cfg    Config
	opts   Options
	parts  *parts
	alarms *events.Alarms
	live   live
}

// live is what a daemon has while it runs. Each is set once by Run; until then nodes of the fleet are told to come
// back.
type live struct {
	provisioner atomic.Pointer[provisioner.Provisioner]
	orders      atomic.Pointer[operate.Orders]
	nodes       atomic.Pointer[fleet.Index]
	store       atomic.Pointer[store.Store]
	followers   atomic.Pointer[followers]
	clock       atomic.Pointer[trust.Clock]
	apiURL      atomic.Value // of string
	conn        atomic.Pointer[nats.Conn]
	requests    atomic.Pointer[nats.Conn] // by which machines' requests come
}

// Store returns the open store, or nil before Run has opened it.
func (b *base) Store() *store.Store { return b.live.store.Load() }

// CAFingerprint returns what tokens pin as their `ca`.
func (b *base) CAFingerprint() string { return b.parts.authority.Fingerprint() }

// Usable reports why the certificate authority cannot issue now, or nil. A
// daemon whose authority cannot runs all the same: it takes confirmations and
// revocations, and says to every other request what ails it. The error wraps
// [ca.ErrAuthority].
func (b *base) Usable() error { return b.parts.authority.Usable() }

// RootsPEM returns the installation's root certificates.
func (b *base) RootsPEM() string { return b.parts.authority.RootsPEM() }

// SealKey returns the public key to which new tokens are to be sealed, in the
// form of a token's `seal`: the first of the configuration. It is empty if there
// is none.
func (b *base) SealKey() string {
	if len(b.parts.sealKeys) == 0 {
		return ""
	}
	return b.parts.sealKeys[0].Public().String()
}

// APIURL is where operators reach the daemon over HTTPS, empty before Run serves
// and where they do not.
func (b *base) APIURL() string {
	url, _ := b.live.apiURL.Load().(string)
	return url
}

// CRL returns the newest CRL of the issuer that issues, or nil before the daemon
// serves.
func (b *base) CRL() *trust.CRL {
	if p := b.live.provisioner.Load(); p != nil {
		return p.CRLs().Newest()
	}
	return nil
}

// CRLs returns the newest CRL of each issuer that signs some, the present one's
// first, or nil before the daemon serves.
func (b *base) CRLs() []*trust.CRL {
	if p := b.live.provisioner.Load(); p != nil {
		return p.CRLs().All()
	}
	return nil
}

// Operator returns the daemon's own provisioner, for what operators order, or
// nil before the daemon serves.
func (b *base) Operator() *provisioner.Provisioner { return b.live.provisioner.Load() }

// Orders returns what operators may order of the daemon's provisioner, or nil before the daemon serves.
func (b *base) Orders() *operate.Orders { return b.live.orders.Load() }

// journalFailed returns why the journal has failed a write, nil if it has not.
func (b *base) journalFailed() error {
	if f := b.live.followers.Load(); f != nil {
		return f.journal.Err()
	}
	return nil
}

// Alarms returns what an operator must act on, the oldest first.
func (b *base) Alarms() []events.Alarm { return b.alarms.Standing() }

// paused returns what is paused and why, nil if nothing is or that is not known yet.
func (b *base) paused() error {
	if o := b.live.orders.Load(); o != nil {
		return o.Pauses.Standing()
	}
	return nil
}

// inRecovery returns why the store is in recovery, nil if it is not or that is not known yet.
func (b *base) inRecovery() error {
	if p := b.live.provisioner.Load(); p != nil {
		return p.Gate.RecoveryAlarm()
	}
	return nil
}
