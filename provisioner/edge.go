package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// A Protocol is the protocol over which a node enrolled. An identity is enrolled over one protocol until it is retired.
type Protocol string

// The protocols. The empty one is that of muster's own agents.
const (
	ProtocolMuster Protocol = ""
	ProtocolChoria Protocol = "choria"
	ProtocolPuppet Protocol = "puppet"
)

// Protocols has the names of all.
var Protocols = []string{ProtocolMuster.String(), ProtocolChoria.String(), ProtocolPuppet.String()}

// PuppetMaxTTL bounds the certificates of Puppet agents: those of version 7 do not renew.
const PuppetMaxTTL = (5*365 + 1) * 24 * time.Hour

// String returns the name in policies, lists and messages.
func (p Protocol) String() string {
	if p == ProtocolMuster {
		return "muster"
	}
	return string(p)
}

// An Edge is what the enrollment of an unmodified client of another system has besides its request.
type Edge struct {
	// Key is the client's key, whose possession the edge has verified: that of the request's CSR, if it has one.
	Key *ca.CSR

	// Directory (of the key's files) and Inventory are what the client said, for a configuration helper.
	Directory string
	Inventory json.RawMessage

	// Settled: no other connection showed the client's name for long enough that a grant of an order to provision it
	// again may be used.
	Settled bool

	// Session: the request came over TLS with the node's certificate, whose key Key is. The key vouches for itself.
	Session bool

	// Keep returns the present certificate with a configuration made anew, and never issues one. It needs Session.
	Keep bool

	// TTL is the life of certificates where the policy gives none. 0: the authority's default.
	TTL time.Duration

	// Complete adds what the client needs to the configuration, which may be empty, and refuses a set that the client
	// could not use. The error becomes [wire.CodeConfigurationFailed]. Nil: all files are as they should be.
	Complete func(wire.Files) (wire.Files, error)
}

// complete returns the files as the node gets them.
func (e *Edge) complete(id wire.Identity, files wire.Files) (wire.Files, error) {
	if e != nil && e.Complete != nil {
		var err error
		if files, err = e.Complete(files); err != nil {
			return wire.Files{}, err
		}
	}
	if e != nil && len(files.Configuration)+len(files.ActionPolicies)+len(files.OPAPolicies) == 0 {
		return files, nil // only muster's own agent needs a setting
	}
	err := files.Check()
	if err == nil && e == nil {
		err = serverconf.CheckPushed(id, files.Configuration)
	}
	return files, err
}

func (e *Edge) keeps() bool { return e != nil && e.Keep }

// extensions are those on record while the name has the same owner.
func (a *attempt) extensions() map[string]string {
	if a.record != nil && a.reason != "" && !a.reason.changesHands() {
		return a.record.Extensions
	}
	return a.csr.Extensions
}

// HasKey reports whether a certificate on the record of id, confirmed or not, is for the key.
func (p *Provisioner) HasKey(ctx context.Context, id wire.Identity, keyHash string) (bool, error) {
	r, _, err := p.cfg.Store.Record(ctx, id)
	if err != nil {
		return false, err
	}
	return len(r.Live(p.now())) > 0 && r.newestFor(keyHash, func(*Issued) bool { return true }) != nil, nil
}

// Reprovisioned reports whether an order to provision the node again has a grant that can be used.
func (p *Provisioner) Reprovisioned(id wire.Identity) bool {
	g, _, err := p.logs.Grant(id)
	return err == nil && g != nil && g.Reprovision && g.Open(p.now())
}

// VoidReprovision ends the grant of an order to provision the node again, and reports whether there was one.
func (p *Provisioner) VoidReprovision(ctx context.Context, id wire.Identity) (bool, error) {
	for range maxRounds {
		g, at, err := p.logs.Grant(id)
		if err != nil || g == nil || !g.Reprovision || !g.Open(p.now()) {
			return false, err
		}
		void := *g
		void.ExpiresAt = p.now()
		_, err = p.logs.Grants.Put(ctx, void.LogKey(), &void, at)
		if !errors.Is(err, trust.ErrConflict) {
			return err == nil, err
		}
	}
	return false, errAgain
}

var errOtherProtocol = errors.New("the identity is enrolled over another protocol")

// checkProtocol refuses a request for an identity that is enrolled over another protocol.
func (a *attempt) checkProtocol() error {
	r := a.record
	if r == nil || r.State == StateRetired || r.Protocol == a.source.Protocol {
		return nil
	}
	return refuse(wire.CodeIdentityTaken, fmt.Errorf("%w: %s; `muster node retire` frees it",
		errOtherProtocol, r.Protocol))
}

// LeaseSchema is the version of the JSON form.
const LeaseSchema = 1

// A Lease is the one exchange with a client of another system that has no state of its own. Each step is written by
// compare-and-set before it is taken, so that another provisioner continues after a crash.
type Lease struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`

	// Connection is the broker's user of the connection that has the exchange, at a broker of Site. It was admitted at
	// Since, and ends before Until.
	Connection string    `json:"connection"`
	Site       jwt.Site  `json:"site,omitempty"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`

	// The client's present key: a certificate request in DER, or an Ed25519 key. A request for a key replaces it, so
	// there is none while this key may have a certificate.
	CSR       []byte `json:"csr,omitempty"`
	Key       []byte `json:"key,omitempty"`
	Directory string `json:"directory,omitempty"` // of the key's files
	Address   string `json:"address,omitempty"`   // of the client that made the key

	// Restarted is when the client, which has its configuration, was told to restart. Settings are the hashes of what
	// it got, by key.
	Restarted time.Time         `json:"restarted,omitzero"`
	Settings  map[string]string `json:"settings,omitempty"`
}

// Check returns why the lease is invalid, or nil.
func (l *Lease) Check() error {
	if l.Schema != LeaseSchema || l.Connection == "" {
		return fmt.Errorf("lease of %q: schema %d, want %d, with a connection", l.Identity, l.Schema, LeaseSchema)
	}
	return nil
}
