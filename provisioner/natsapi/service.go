// Package natsapi is the edge between NATS and the provisioner: it takes
// requests off the two subjects of enrollment, decodes them, has them decided
// and sends the replies.
//
// It trusts nothing in a message. Who sent it, it takes from the broker: the
// services are imported with `share: true`, so each request carries the
// connection's address in a header that clients cannot set (package broker).
//
// Work in hand is bounded. A request for which there is no room is answered
// `busy` at once, with a time to come back at that spreads all who were told
// so over the measured rate; see [spreader].
package natsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/provisioner"
)

// Config configures [New].
type Config struct {
	Conn         *nats.Conn               // required: to the account MUSTER
	Provisioner  *provisioner.Provisioner // required
	Installation string                   // required: id of the store, in every reply

	// Prefix stands before both subjects, for a service of its own beside
	// others. Optional.
	Prefix string

	// Workers is how many requests are worked on at once. Most of that time
	// is waiting for the disk, so it is far above the number of cores.
	// Optional; default 256.
	Workers int

	// Queue is how many more may wait. Optional; default 2048: at the slowest
	// disk measured (1 ms a write) those are served in two seconds, well within
	// the time that a node waits for its reply.
	Queue int

	// Timeout bounds the work for one request. Optional; default 30 s.
	Timeout time.Duration

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// A Service answers enroll requests and confirmations. Make one with [New] and
// start it with Run.
type Service struct {
	cfg      Config
	spread   *spreader
	inFlight atomic.Int64
}

// New checks cfg and returns a Service. It starts nothing.
func New(cfg Config) (*Service, error) {
	var errs []error
	if cfg.Conn == nil {
		errs = append(errs, errors.New("no connection"))
	}
	if cfg.Provisioner == nil {
		errs = append(errs, errors.New("no provisioner"))
	}
	if cfg.Installation == "" {
		errs = append(errs, errors.New("no installation id"))
	}
	if cfg.Workers < 0 || cfg.Queue < 0 || cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("%d workers, queue of %d, timeout %v: want 0 (default) or more", cfg.Workers, cfg.Queue, cfg.Timeout))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("nats edge: %w", errors.Join(errs...))
	}
	if cfg.Workers == 0 {
		cfg.Workers = 256
	}
	if cfg.Queue == 0 {
		cfg.Queue = 2048
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg: cfg, spread: newSpreader(cfg.Now)}, nil
}

// Run serves until ctx is done. It then takes no further request, finishes all
// that it has taken, flushes the replies and returns nil. Any other return
// means that it could not begin or could not drain.
//
// Run owns every goroutine of the package. ready, if not nil, is called once
// requests are being taken.
func (s *Service) Run(ctx context.Context, ready func()) error {
	// Requests in hand are finished while stopping: a node whose request was
	// taken gets its reply.
	work := context.WithoutCancel(ctx)
	requests := make(chan *nats.Msg, s.cfg.Queue)
	take := func(m *nats.Msg) {
		select {
		case requests <- m:
		default:
			s.busy(work, m)
		}
	}
	var subs []*nats.Subscription
	for _, subject := range []string{wire.SubjectEnroll, wire.SubjectApplied} {
		sub, err := s.cfg.Conn.QueueSubscribe(s.cfg.Prefix+subject, wire.QueueProvisioners, take)
		if err != nil {
			return errors.Join(fmt.Errorf("nats edge: subscribe %s: %w", subject, err), drain(subs))
		}
		subs = append(subs, sub)
	}
	if err := s.cfg.Conn.Flush(); err != nil {
		return errors.Join(fmt.Errorf("nats edge: %w", err), drain(subs))
	}
	var g errgroup.Group
	for range s.cfg.Workers {
		g.Go(func() error {
			for m := range requests {
				s.serve(work, m)
			}
			return nil
		})
	}
	g.Go(func() error { s.spread.run(ctx); return nil })
	if ready != nil {
		ready()
	}
	<-ctx.Done()
	s.cfg.Log.InfoContext(work, "provisioner stopping, requests in hand are finished first", "requests", s.inFlight.Load()+int64(len(requests)))
	err := drain(subs)
	close(requests) // after drain nobody calls take
	if werr := g.Wait(); werr != nil {
		err = errors.Join(err, werr)
	}
	if ferr := s.cfg.Conn.FlushTimeout(s.cfg.Timeout); ferr != nil {
		err = errors.Join(err, fmt.Errorf("nats edge: flush replies: %w", ferr))
	}
	return err
}

// drain ends the subscriptions and returns when the last message that the
// broker had already sent has been taken.
func drain(subs []*nats.Subscription) error {
	var errs []error
	var closed sync.WaitGroup
	for _, sub := range subs {
		closed.Add(1)
		sub.SetClosedHandler(func(string) { closed.Done() })
		if err := sub.Drain(); err != nil {
			errs = append(errs, fmt.Errorf("nats edge: drain %s: %w", sub.Subject, err))
			closed.Done()
		}
	}
	closed.Wait()
	return errors.Join(errs...)
}

// serve answers one request.
func (s *Service) serve(ctx context.Context, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	s.inFlight.Add(1)
	reply := s.answer(ctx, m)
	s.inFlight.Add(-1)
	s.spread.done()
	s.respond(ctx, m, reply)
}

// answer decides over a request. A panic on the way is a bug, but one request
// must not take the others down with it: Choria's provisioner died of a single
// CSR that was not PEM.
func (s *Service) answer(ctx context.Context, m *nats.Msg) (reply *wire.Reply) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Log.ErrorContext(ctx, "request panicked", "subject", m.Subject, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
			reply = &wire.Reply{Refusal: (&provisioner.Refusal{Code: wire.CodeUnavailable}).Message()}
		}
	}()
	if m.Subject == s.cfg.Prefix+wire.SubjectApplied {
		return s.applied(ctx, m)
	}
	return s.enroll(ctx, m)
}

func (s *Service) enroll(ctx context.Context, m *nats.Msg) *wire.Reply {
	source := sourceOf(m)
	r, err := wire.DecodeEnroll(m.Data)
	if err != nil {
		return s.malformed(ctx, err, source)
	}
	enrolled, err := s.cfg.Provisioner.Enroll(ctx, r, source)
	if err != nil {
		return &wire.Reply{ID: r.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: r.ID, Enrolled: enrolled}
}

func (s *Service) applied(ctx context.Context, m *nats.Msg) *wire.Reply {
	source := sourceOf(m)
	a, err := wire.DecodeApplied(m.Data)
	if err != nil {
		return s.malformed(ctx, err, source)
	}
	if err := s.cfg.Provisioner.Applied(ctx, a, source); err != nil {
		return &wire.Reply{ID: a.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: a.ID, Applied: &wire.Accepted{Serial: a.Serial}}
}

// malformed answers what could not be decoded.
func (s *Service) malformed(ctx context.Context, err error, source provisioner.Source) *wire.Reply {
	code := wire.CodeBadRequest
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		code = wire.CodeTooLarge
	case errors.Is(err, wire.ErrVersion):
		code = wire.CodeUnsupportedVersion
	case errors.Is(err, wire.ErrSealed):
		code = wire.CodeSealedUnsupported
	}
	refusal := s.cfg.Provisioner.Reject(ctx, code, err, source).Message()
	if code == wire.CodeUnsupportedVersion {
		refusal.Versions = wire.SupportedVersions
	}
	return &wire.Reply{Refusal: refusal}
}

// message is what the node is told about an error from the provisioner.
func message(err error) *wire.Refusal {
	var r *provisioner.Refusal
	if !errors.As(err, &r) {
		r = &provisioner.Refusal{Code: wire.CodeUnavailable, Err: err}
	}
	return r.Message()
}

// busy answers a request that there is no room for. It decodes nothing but the
// id, for the node ignores replies without it.
func (s *Service) busy(ctx context.Context, m *nats.Msg) {
	var peek struct {
		Body struct {
			ID string `json:"id"`
		} `json:"body"`
	}
	if len(m.Data) <= wire.MaxMessageBytes {
		_ = json.Unmarshal(m.Data, &peek) // what is malformed is told so when there is room
	}
	refusal := (&provisioner.Refusal{Code: wire.CodeBusy, After: s.spread.next()}).Message()
	s.respond(ctx, m, &wire.Reply{ID: peek.Body.ID, Refusal: refusal})
}

// respond sends a reply. If it is lost, the node asks again.
func (s *Service) respond(ctx context.Context, m *nats.Msg, reply *wire.Reply) {
	if m.Reply == "" {
		return // nobody listens
	}
	reply.Installation = s.cfg.Installation
	b, err := wire.Encode(reply)
	if err == nil {
		err = m.Respond(b)
	}
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "reply lost", "subject", m.Subject, "err", err)
	}
}

// requestInfo is the part that we use of what the broker says of a requester,
// in the header that `share: true` adds (server.ClientInfo of nats-server).
type requestInfo struct {
	Host string `json:"host"`
}

// requestInfoHeader is overwritten by the broker whatever a client sent.
const requestInfoHeader = "Nats-Request-Info"

func sourceOf(m *nats.Msg) provisioner.Source {
	var info requestInfo
	if h := m.Header.Get(requestInfoHeader); h != "" {
		_ = json.Unmarshal([]byte(h), &info) // ours; an empty address is "unknown"
	}
	return provisioner.Source{Address: info.Host}
}
