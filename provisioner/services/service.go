// Package services issues nodes their service certificates: those besides the node's own.
package services

import (
	"context"
	"errors"
	"log/slog"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// A Store keeps the entries. Its methods are safe for concurrent use.
type Store interface {
	// Certificate returns the newest entry with its revision, or nil and 0. An unreadable one is [trust.ErrRecord].
	Certificate(ctx context.Context, node wire.Identity, name string) (*Certificate, trust.Revision, error)

	// PutCertificate has the errors of [provisioner.Store.Put].
	PutCertificate(ctx context.Context, c *Certificate, after trust.Revision) (trust.Revision, error)

	// FollowCertificates calls each with the newest entries, and then with new ones, until ctx is done; then it returns
	// nil. An entry may come twice.
	FollowCertificates(ctx context.Context, each func(*Certificate, trust.Revision)) error

	// CertificatesFresh returns nil while FollowCertificates has delivered every entry older than [trust.MaxAge].
	CertificatesFresh() error
}

// Config configures [New].
type Config struct {
	Provisioner *provisioner.Provisioner // required
	Store       Store                    // required
}

// A Service issues service certificates. It is safe for concurrent use.
type Service struct {
	cfg    Config
	p      *provisioner.Provisioner
	own    provisioner.Config
	emit   func(events.Event)
	alarms *events.Alarms
	log    *slog.Logger
	index  *Index
}

// New returns a Service. It starts nothing.
func New(cfg Config) *Service {
	own := cfg.Provisioner.Config()
	return &Service{cfg: cfg, p: cfg.Provisioner, own: own, emit: own.Emit, alarms: own.Alarms, log: own.Log,
		index: &Index{}}
}

var errUnfinished = errors.New("service certificates are not built in yet")

// Handle answers a request of a node. The error is a *[provisioner.Refusal].
func (s *Service) Handle(
	_ context.Context, r *wire.CertificateRequest, _ provisioner.Source,
) (*wire.ServiceCertificate, error) {
	return nil, &provisioner.Refusal{Node: r.Identity, Code: wire.CodeUnavailable, Err: errUnfinished}
}

// Run keeps the index up to date until ctx is done, and returns nil then.
func (s *Service) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Index returns the entries in memory.
func (s *Service) Index() *Index { return s.index }
