// Package services issues nodes their service certificates: those besides the node's own.
package services

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
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

	// Issuing counts requests in progress that will probably write, for the store. Required.
	Issuing *atomic.Int64
}

// A Service issues service certificates. It is safe for concurrent use.
type Service struct {
	cfg   Config
	p     *provisioner.Provisioner
	own   provisioner.Config
	logs  *orders.Logs
	index *Index

	issues, reports, givenUp, refusals *limit.Keyed[wire.Identity]
}

// Limits of one node. A request that gets the same certificate again is free.
var (
	issueRate  = limit.Rate{Burst: 2 * wire.MaxCertificates, PerSecond: 1}
	reportRate = limit.Rate{Burst: 8 * wire.MaxCertificates, PerSecond: 1}

	// Revocations are kept for good.
	giveUpRate = limit.Rate{Burst: wire.MaxCertificates, PerSecond: 1.0 / 300}

	refusalRate = limit.Rate{Burst: 20, PerSecond: 1.0 / 30} // of events
)

// New returns a Service. It starts nothing.
func New(cfg Config) *Service {
	own := cfg.Provisioner.Config()
	keyed := func(r limit.Rate) *limit.Keyed[wire.Identity] {
		r.Now = own.Now
		return limit.NewKeyed[wire.Identity](r)
	}
	return &Service{
		cfg:  cfg,
		p:    cfg.Provisioner,
		own:  own,
		logs: own.Store.Logs(),
		index: &Index{
			fresh:   cfg.Store.CertificatesFresh,
			revoked: cfg.Provisioner.Revocations().Serial,
			now:     own.Now,
			nodes:   make(map[wire.Identity]map[string]indexed),
			holders: make(map[string]map[wire.Identity]struct{}),
		},
		issues:   keyed(issueRate),
		reports:  keyed(reportRate),
		givenUp:  keyed(giveUpRate),
		refusals: keyed(refusalRate),
	}
}

// Index returns the entries in memory.
func (s *Service) Index() *Index { return s.index }

const alarmEvery = 2 * time.Second

// Run keeps the index, the revocations and the alarms up to date until ctx is done, and returns nil then.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	s.p.AlsoEnforce(s.sweep)
	g.Go(func() error { return s.cfg.Store.FollowCertificates(ctx, s.follow) })
	g.Go(func() error {
		return span.Every(ctx, sweepEvery, func(context.Context) {
			for _, node := range s.index.owners() {
				s.sweepSoon(node)
			}
		})
	})
	g.Go(func() error { return span.Every(ctx, alarmEvery, s.alarm) })
	return g.Wait()
}

func (s *Service) now() time.Time { return s.own.Now().UTC().Truncate(time.Second) }

func (s *Service) moment() time.Time { return s.own.Now().UTC().Truncate(time.Millisecond) }

// event returns an event. Call it before the write, so that consequences are later.
func (s *Service) event(t events.Type, node wire.Identity, name string, c trust.Cause) events.Event {
	return events.Event{Type: t, Time: s.moment(), Node: string(node), Name: name, By: c.By, Why: c.Why}
}

const (
	// maxRounds bounds conflicts with other processes in a row.
	maxRounds = 8

	// againPause grows with each round: another write may not be readable at once.
	againPause = 10 * time.Millisecond
)

// errAgain means that another write came first: read and decide again.
var errAgain = errors.New("the entry was changed meanwhile")

// put writes c if its newest revision is still the given one, and returns once c is on disk. If the outcome is unknown,
// put looks for c, or writes the same bytes again: one of two writes is a conflict. After another write the error is
// errAgain.
func (s *Service) put(ctx context.Context, c *Certificate, after trust.Revision) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		_, err := s.cfg.Store.PutCertificate(ctx, c, after)
		if err == nil {
			return nil
		}
		newest, at, rerr := s.cfg.Store.Certificate(ctx, c.Node, c.Name)
		switch {
		case rerr == nil && newest != nil && newest.Attempt == c.Attempt:
			s.index.put(newest, at)
			return nil
		case errors.Is(err, trust.ErrConflict), rerr == nil && at != after:
			return errAgain
		case errors.Is(err, trust.ErrStoreFull):
			return err
		}
		s.own.Log.WarnContext(ctx, "service certificate not acknowledged", "node", c.Node, "name", c.Name, "err", err)
		if !span.Sleep(ctx, wait) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// change writes what edit makes of an entry, again after a conflict. The error is [ErrNone] without an entry.
func (s *Service) change(ctx context.Context, node wire.Identity, name string, edit func(*Certificate) error) error {
	for round := range maxRounds {
		span.Sleep(ctx, time.Duration(round)*againPause)
		before, at, err := s.cfg.Store.Certificate(ctx, node, name)
		if err == nil && before == nil {
			err = ErrNone
		}
		if err != nil {
			return err
		}
		next := *before
		if err := edit(&next); err != nil {
			return err
		}
		next.Attempt, next.UpdatedAt = wire.NewID(), s.now()
		if err := s.put(ctx, &next, at); !errors.Is(err, errAgain) {
			return err
		}
	}
	return errAgain
}
