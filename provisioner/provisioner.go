package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
)

// A Configurator makes the configuration of a node where the policy gives
// none.
type Configurator interface {
	// Configure returns the files for the node. An error that is a *Refusal
	// keeps its code; any other is [wire.CodeConfigurationFailed].
	Configure(ctx context.Context, s Subject) (wire.Files, error)
}

// A Subject is the node that a configuration is for. Its token and its key are
// proven, its facts are what it says.
type Subject struct {
	Identity wire.Identity
	Token    *jwt.Verified
	CSR      *ca.CSR
	CSRDER   []byte
	Facts    json.RawMessage
	Source   Source
}

// A Source is where a request came from, as the broker says: the node cannot
// forge it.
type Source struct {
	Address string // host, without port; "" if unknown
}

// Config configures [New].
type Config struct {
	Tokens    *jwt.Verifier    // required
	Policy    *policies.Engine // required
	Authority *ca.Authority    // required
	Store     Store            // required

	// Configurator makes what the policy leaves open. Nil: only the policy
	// configures nodes.
	Configurator Configurator

	// Allow returns the entry of the allow-list that covers an identity, or nil.
	// Nil: the list is empty.
	Allow func(wire.Identity) *policies.AllowEntry

	// Reserved says why an identity can never be a node's, or nil. It is given
	// the token since names in its URLs are brokers' names. Nil reserves
	// nothing.
	Reserved func(wire.Identity, *jwt.Verified) error

	// Emit takes events. It must not block. Nil drops them.
	Emit func(Event)

	// Site and Version describe this provisioner to tokens and policies.
	Site    jwt.Site
	Version string

	// Quotas bound how many identities that were never seen are let in.
	Quotas Quotas

	// Log gets one line per decision. Optional; discards by default.
	Log *slog.Logger

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Provisioner decides over enrollment: it proves what a request claims, asks
// the policy, issues the certificate and keeps the record. It is safe for
// concurrent use; requests for one identity are taken one at a time.
type Provisioner struct {
	cfg    Config // set by New, then read-only
	locks  identityLocks
	quotas quotas
}

// New returns a Provisioner or an error naming all that cfg lacks. It starts
// nothing.
func New(cfg Config) (*Provisioner, error) {
	var errs []error
	missing := func(absent bool, what string) {
		if absent {
			errs = append(errs, errors.New("no "+what))
		}
	}
	missing(cfg.Tokens == nil, "token verifier")
	missing(cfg.Policy == nil, "policy")
	missing(cfg.Authority == nil, "certificate authority")
	missing(cfg.Store == nil, "store")
	if cfg.Quotas.PerToken < 0 || cfg.Quotas.PerSource < 0 {
		errs = append(errs, fmt.Errorf("quotas of %d per token and %d per source, want 0 (none) or more", cfg.Quotas.PerToken, cfg.Quotas.PerSource))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("provisioner: %w", errors.Join(errs...))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Allow == nil {
		cfg.Allow = func(wire.Identity) *policies.AllowEntry { return nil }
	}
	if cfg.Reserved == nil {
		cfg.Reserved = func(wire.Identity, *jwt.Verified) error { return nil }
	}
	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}
	return &Provisioner{cfg: cfg, quotas: newQuotas(cfg.Quotas, cfg.Now)}, nil
}

// now is the clock as it crosses boundaries: UTC, to the second.
func (p *Provisioner) now() time.Time { return p.cfg.Now().UTC().Truncate(time.Second) }

// AdmitNode returns nil if the certificate with the serial is live on the
// record of id: current, or offered and not yet confirmed. The broker asks it
// for every connection to the fleet. Anything else keeps the node out,
// including a store that does not answer.
func (p *Provisioner) AdmitNode(ctx context.Context, id wire.Identity, serial string) error {
	r, _, err := p.cfg.Store.Record(ctx, id)
	if err != nil {
		return refuse(string(id), wire.CodeUnavailable, err)
	}
	if r.state() == StateRevoked {
		return refuse(string(id), wire.CodeIdentityRevoked, errRevoked)
	}
	for _, live := range r.Live(p.now()) {
		if live == serial {
			return nil
		}
	}
	return refuse(string(id), wire.CodeNotIssued, fmt.Errorf("certificate %s is not live for %s", serial, id))
}

// Reject logs and emits the refusal of something that is not even a request:
// a message that could not be decoded. It returns the refusal to send.
func (p *Provisioner) Reject(ctx context.Context, code wire.Code, err error, source Source) *Refusal {
	r := refuse("", code, err)
	p.cfg.Emit(RefusalEvent(r, p.now(), source.Address))
	p.cfg.Log.WarnContext(ctx, "request rejected", "code", code, "source", source.Address, "err", err)
	return r
}
