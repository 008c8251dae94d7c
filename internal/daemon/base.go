package daemon

import (
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/choria"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/puppet"
	"muster/provisioner/services"
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

// live is set by Run.
type live struct {
	provisioner atomic.Pointer[provisioner.Provisioner]
	orders      atomic.Pointer[operate.Orders]
	services    atomic.Pointer[services.Service]
	nodes       atomic.Pointer[fleet.Index]
	store       atomic.Pointer[store.Store]
	followers   atomic.Pointer[followers]
	clock       atomic.Pointer[trust.Clock]
	apiURL      atomic.Value // of string
	conn        atomic.Pointer[nats.Conn]
	requests    atomic.Pointer[nats.Conn]      // for requests of nodes
	choria      atomic.Pointer[choria.Gateway] // nil without a gateway
	puppet      atomic.Pointer[puppet.Server]  // nil without a gateway
	serving     atomic.Bool
}

// Store is nil before Run has opened it.
func (b *base) Store() *store.Store { return b.live.store.Load() }

// CAFingerprint returns the claim `ca` of new tokens.
func (b *base) CAFingerprint() string { return b.parts.authority.Fingerprint() }

// Usable returns why the authority cannot issue now, or nil. Confirmations and revocations still work then. The error
// wraps [ca.ErrAuthority].
func (b *base) Usable() error { return b.parts.authority.Usable() }

func (b *base) RootsPEM() string { return b.parts.authority.RootsPEM() }

// SealKey returns the claim `seal` of new tokens, or "".
func (b *base) SealKey() string {
	if len(b.parts.sealKeys) == 0 {
		return ""
	}
	return b.parts.sealKeys[0].Public().String()
}

// APIURL is the operators' HTTPS URL, or "".
func (b *base) APIURL() string {
	url, _ := b.live.apiURL.Load().(string)
	return url
}

// CRLs returns the newest CRL of each issuer, the present one's first, that of Puppet's last.
func (b *base) CRLs() []*trust.CRL {
	if p := b.live.provisioner.Load(); p != nil {
		return p.AllCRLs()
	}
	return nil
}

// Operator is nil before the daemon serves.
func (b *base) Operator() *provisioner.Provisioner { return b.live.provisioner.Load() }

// Orders is nil before the daemon serves.
func (b *base) Orders() *operate.Orders { return b.live.orders.Load() }

// Services is nil before the daemon serves.
func (b *base) Services() *services.Service { return b.live.services.Load() }

// Alarms returns the alarms, oldest first.
func (b *base) Alarms() []events.Alarm { return b.alarms.Standing() }

// faultOf returns what a node on record cannot renew for, or "".
func (b *base) faultOf(id wire.Identity) string {
	if x := b.live.nodes.Load(); x != nil {
		n, _ := x.Find(id)
		return n.Fault
	}
	return ""
}
