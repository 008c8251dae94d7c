// Package natsapi passes requests and replies between NATS and the provisioner. It trusts the broker, not the message,
// about the sender: each request has the connection's address, account and user in a header (package broker). If there
// is no room, a request gets a busy reply with a retry time ([limit.Backlog]).
package natsapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
	"muster/internal/queuegroup"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner"
)

// placeBytes is the size of a place in [Config.Queue]. A request with 2 KB of facts has 4 KB.
const placeBytes = 8 << 10

// flushTimeout bounds the last flush. Nodes ask again for lost replies.
const flushTimeout = 30 * time.Second

// Config configures [New].
type Config struct {
	Conn         *nats.Conn               // required: to the account MUSTER
	Provisioner  *provisioner.Provisioner // required
	Installation string                   // required: in every reply

	// Sign adds the proof to an unsealed reply to a node's request; receiptSum is the request's, or "". Required.
	Sign func(r *wire.Reply, identity, receiptSum string, request []byte) error

	// Certificates handles requests about service certificates. Its errors are like [provisioner.Provisioner.Renew]'s.
	// Required.
	Certificates interface {
		Handle(context.Context, *wire.CertificateRequest, provisioner.Source) (*wire.ServiceCertificate, error)
	}

	// Opener opens sealed requests. Nil: they get [wire.CodeSealedUnsupported], in plain text.
	Opener *seal.Opener

	// Budget is charged for opening sealed messages. Share it with the provisioner.
	Budget *provisioner.Budget

	// Prefix begins all subjects, for a second service. Optional.
	Prefix string

	// Workers is the number of requests in progress. They mostly wait for the disk. Default 256.
	Workers int

	// Queue bounds waiting requests, per kind and address ([provisioner.Source.Key]). Default 2048: at 1 ms a write
	// both kinds are served in four seconds, and a node waits 15 s.
	Queue int

	// After MaxWait a queued request gets a busy reply: its node waits 15 s, and a late reply is wasted. (In a
	// storm on two slow cores, 6,000 of 10,036 came too late.) Default 5 s.
	MaxWait time.Duration

	// InHand counts requests in progress, for the store. Several services may share it. Optional.
	InHand *atomic.Int64

	// Fault returns why other provisioners must take the requests, or nil. It must not block. Optional.
	Fault func() error

	// Busy is called for each request without room. It must not block. Optional.
	Busy func()

	// Default 30 s.
	Timeout time.Duration

	// Default discards.
	Log *slog.Logger
}

// A Service answers enroll requests, renewals, confirmations and requests about service certificates.
type Service struct {
	cfg     Config
	backlog *limit.Backlog
}

// New returns a Service. It starts nothing.
func New(cfg Config) *Service {
	cfg.Workers = cmp.Or(cfg.Workers, 256)
	cfg.Queue = cmp.Or(cfg.Queue, 2048)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 5*time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.InHand = cmp.Or(cfg.InHand, new(atomic.Int64))
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Busy == nil {
		cfg.Busy = func() {}
	}
	return &Service{cfg: cfg, backlog: limit.NewBacklog(nil)}
}

// Run serves until ctx is done, finishes what it has taken, and flushes the replies. It owns every goroutine of the
// package. ready, if not nil, is called once requests are taken, or Fault prevents it.
func (s *Service) Run(ctx context.Context, ready func()) error {
	// Requests in progress are finished while stopping.
	work := context.WithoutCancel(ctx)
	waiting := newQueue(2*s.cfg.Queue, placeBytes)
	excess := newQueue(maxExcessBytes/excessPlaceBytes, excessPlaceBytes)
	take := func(m *nats.Msg) {
		if m.Reply == "" {
			// A requester named our subject as its reply subject. Answering our own reply would loop.
			return
		}
		c, confirmation := newCall(m), s.isApplied(m)
		if !waiting.put(c, confirmation) && !excess.put(c, confirmation) {
			s.cfg.Busy() // see busy.go
		}
	}
	// No queue group: every process gets every event.
	events := newEvents()
	heard, err := s.cfg.Conn.Subscribe(wire.AllNodeEvents, events.put)
	if err != nil {
		return fmt.Errorf("requests over NATS: subscribe %s: %w", wire.AllNodeEvents, err)
	}
	var g sync.WaitGroup
	for range s.cfg.Workers {
		g.Go(func() {
			withStack(func() { waiting.each(func(w *waiter) { s.serve(work, w) }) })
		})
	}
	for range busyWorkers() {
		g.Go(func() {
			excess.each(func(w *waiter) { s.busy(work, w.call) })
		})
	}
	g.Go(func() {
		for m := range events.queue {
			events.release(m)
			s.handleEvent(work, m)
		}
	})
	err = s.group(take).Run(ctx, ready)
	s.cfg.Log.InfoContext(work, "provisioner stopping, finishing requests in progress",
		"requests", s.cfg.InHand.Load()+int64(waiting.len()))
	err = errors.Join(err, queuegroup.Drain(heard))
	waiting.close() // take is not called any more
	close(events.queue)
	excess.close()
	g.Wait()
	if err = errors.Join(err, s.cfg.Conn.FlushTimeout(flushTimeout)); err != nil {
		return fmt.Errorf("requests over NATS: %w", err)
	}
	return nil
}

func (s *Service) group(take nats.MsgHandler) *queuegroup.Group {
	return &queuegroup.Group{
		Conn: s.cfg.Conn,
		Name: wire.QueueProvisioners,
		Subjects: []string{s.cfg.Prefix + wire.SubjectEnroll, s.cfg.Prefix + wire.SubjectApplied,
			s.cfg.Prefix + wire.SubjectRenew, s.cfg.Prefix + wire.SubjectCertificate},
		Take:  take,
		Fault: s.cfg.Fault,
	}
}

func (s *Service) serve(ctx context.Context, w *waiter) {
	if time.Since(w.since) > s.cfg.MaxWait { // monotonic
		s.busy(ctx, w.call)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	s.cfg.InHand.Add(1)
	reply := s.answer(ctx, w.call)
	s.cfg.InHand.Add(-1)
	switch r := reply.Refusal; {
	case s.isApplied(w.Msg): // belongs to a request already counted
	case r == nil || r.Code != wire.CodeStoreUnavailable && r.Code != wire.CodeBusy:
		s.backlog.Done()
	case r.Code == wire.CodeStoreUnavailable:
		s.backlog.Stalled()
	}
	s.respond(ctx, w.call, reply)
}

// survive logs a panic. Defer it.
func (s *Service) survive(ctx context.Context, m *nats.Msg) {
	if r := recover(); r != nil {
		s.cfg.Log.ErrorContext(ctx, "message panicked", "subject", m.Subject, "err", fmt.Sprint(r),
			"stack", string(debug.Stack()))
	}
}

// answer survives a panic, so that one bad message does not end the process.
func (s *Service) answer(ctx context.Context, c *call) (reply *wire.Reply) {
	reply = &wire.Reply{Refusal: (&provisioner.Refusal{Code: wire.CodeUnavailable}).Message()} // after a panic
	defer s.survive(ctx, c.Msg)
	if c.forged {
		return s.malformed(ctx, wire.ErrForged, c)
	}
	switch c.Subject {
	case s.cfg.Prefix + wire.SubjectApplied:
		return s.applied(ctx, c)
	case s.cfg.Prefix + wire.SubjectRenew:
		return s.renew(ctx, c)
	case s.cfg.Prefix + wire.SubjectCertificate:
		return s.certificate(ctx, c)
	}
	return s.enroll(ctx, c)
}

func (s *Service) isApplied(m *nats.Msg) bool { return m.Subject == s.cfg.Prefix+wire.SubjectApplied }

func (s *Service) enroll(ctx context.Context, c *call) *wire.Reply {
	r, err := decode(s, c, wire.DecodeEnroll)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	c.identity = r.Identity
	if err := s.checkSession(c); err != nil {
		refusal := s.cfg.Provisioner.Reject(ctx, "", wire.CodeSealedInvalid, err, c.source)
		return &wire.Reply{ID: r.ID, Refusal: refusal.Message()}
	}
	enrolled, err := s.cfg.Provisioner.Enroll(ctx, r, c.source)
	return &wire.Reply{ID: r.ID, Enrolled: enrolled, Refusal: message(err)}
}

// Renewals are never sealed: their connection is TLS.
func (s *Service) renew(ctx context.Context, c *call) *wire.Reply {
	r, err := wire.DecodeRenew(c.Data)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	c.identity = r.Identity
	enrolled, err := s.cfg.Provisioner.Renew(ctx, r, c.source)
	return &wire.Reply{ID: r.ID, Enrolled: enrolled, Refusal: message(err)}
}

func (s *Service) certificate(ctx context.Context, c *call) *wire.Reply {
	r, err := wire.DecodeCertificate(c.Data)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	c.identity = r.Identity
	certificate, err := s.cfg.Certificates.Handle(ctx, r, c.source)
	return &wire.Reply{ID: r.ID, Certificate: certificate, Refusal: message(err)}
}

func (s *Service) applied(ctx context.Context, c *call) *wire.Reply {
	a, err := decode(s, c, wire.DecodeApplied)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	c.identity, c.receiptSum = a.Identity, a.ReceiptSum
	if err := s.cfg.Provisioner.Applied(ctx, a, c.source); err != nil {
		return &wire.Reply{ID: a.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: a.ID, Applied: &wire.Accepted{Serial: a.Serial}}
}

func (s *Service) malformed(ctx context.Context, err error, c *call) *wire.Reply {
	code := wire.CodeBadRequest
	switch {
	case errors.Is(err, wire.ErrTooLarge):
		code = wire.CodeTooLarge
	case errors.Is(err, wire.ErrVersion):
		code = wire.CodeUnsupportedVersion
	case errors.Is(err, errBudget):
		code = wire.CodeSourceLimited
	case errors.Is(err, seal.ErrOpen), errors.Is(err, seal.ErrUnknownKey):
		code = wire.CodeSealedInvalid
	case errors.Is(err, wire.ErrSealed) && s.cfg.Opener == nil:
		code = wire.CodeSealedUnsupported
	}
	refusal := s.cfg.Provisioner.Reject(ctx, "", code, err, c.source).Message()
	if code == wire.CodeUnsupportedVersion {
		refusal.Versions = wire.SupportedVersions
	}
	return &wire.Reply{Refusal: refusal}
}

func message(err error) *wire.Refusal {
	if err == nil {
		return nil
	}
	return provisioner.RefusalOf(err, wire.CodeUnavailable).Message()
}

// respond seals the reply to a sealed request, and signs another one. If it is lost, the node asks again.
func (s *Service) respond(ctx context.Context, c *call, reply *wire.Reply) {
	reply.Installation = s.cfg.Installation
	if c.sealer == nil && reply.Signed() {
		if err := s.cfg.Sign(reply, c.identity, c.receiptSum, c.Data); err != nil {
			s.cfg.Log.ErrorContext(ctx, "reply not signed", "node", c.identity, "err", err)
			reply = &wire.Reply{ID: reply.ID, Installation: reply.Installation, Refusal: message(err)}
		}
	}
	var b []byte
	var err error
	if c.sealer != nil {
		b, err = c.sealer.EncodeReply(reply)
	} else {
		b, err = wire.Encode(reply)
	}
	if err == nil {
		err = c.Respond(b)
	}
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "reply lost", "subject", c.Subject, "err", err)
	}
}

// A call is a request with its sender.
type call struct {
	*nats.Msg
	source  provisioner.Source
	user    string            // of the connection according to the broker: the session's name if one was proven
	sealer  *seal.ReplySealer // of an opened request, else nil
	session string            // of an opened request: the encapsulated key, never empty

	// Of a decoded request.
	identity   string
	receiptSum string

	forged bool // it has other headers than the broker's: see newCall
}

// accountFleet equals broker.AccountFleet, which this package does not import.
const accountFleet = "FLEET"

// newCall takes the sender only from the broker's header.
func newCall(m *nats.Msg) *call {
	sender, err := wire.SenderOf(m.Header, m.Size()-len(m.Subject)-len(m.Reply)-len(m.Data))
	c := &call{
		Msg:    m,
		source: provisioner.Source{Address: sender.Host, Server: sender.Server},
		user:   sender.User,
		forged: err != nil,
	}
	if sender.Account == accountFleet {
		c.source.Node = wire.Identity(c.user) // parsed by the gate
	}
	return c
}

// stackRoom is a quarter of the 64 KiB that a worker's stack grows to (measured)
const stackRoom = 16 << 10

// withStack calls work on a stack that does not shrink below 64 KiB. The garbage collector halves a stack if less than
// a quarter is in use; growing it again cost 20 µs a node (measured). So this frame takes a quarter. The stacks of 256
// workers take 16 MiB.
//
//go:noinline
func withStack(work func()) {
	var room [stackRoom]byte
	work()
	runtime.KeepAlive(&room)
}

var errBudget = errors.New("too many sealed messages from this address could not be opened")

// sealedPrefix begins every message of [seal.Session.Encode]. Looking for it saves a second decoding.
var sealedPrefix = fmt.Appendf(nil, `{"v":%d,"sealed":true,`, wire.Version)

// decode first opens a sealed message; then replies to c are sealed. Its errors wrap [seal.ErrOpen],
// [seal.ErrUnknownKey] or errBudget.
func decode[T any](s *Service, c *call, decoder func([]byte) (*T, error)) (*T, error) {
	if s.cfg.Opener == nil {
		return decoder(c.Data)
	}
	if !bytes.HasPrefix(c.Data, sealedPrefix) {
		if v, err := decoder(c.Data); !errors.Is(err, wire.ErrSealed) {
			return v, err
		}
	}
	message, err := s.open(c)
	if err != nil {
		return nil, err
	}
	return decoder(message)
}

// open charges the budget: opening costs as much as a signature check.
func (s *Service) open(c *call) ([]byte, error) {
	e, err := wire.Open(c.Data, wire.MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	if !s.cfg.Budget.Charge(c.source.Address) {
		return nil, errBudget
	}
	purpose := seal.PurposeEnroll
	if s.isApplied(c.Msg) {
		purpose = seal.PurposeApplied
	}
	message, sealer, err := s.cfg.Opener.Open(purpose, e)
	if err != nil {
		return nil, err
	}
	c.sealer, c.session, c.source.Sealed = sealer, seal.SessionName(e.Encapsulated), true
	c.source.Proven = func() { s.refund(c) }
	return message, nil
}

func (s *Service) refund(c *call) {
	if c.sealer != nil {
		s.cfg.Budget.Refund(c.source.Address)
	}
}

// checkSession refuses a sealed request from another connection than its session's, such as a recorded one. Clients
// cannot choose the connection's user: the broker sets it to the session proven there.
func (s *Service) checkSession(c *call) error {
	if c.sealer != nil && c.session != c.user {
		return fmt.Errorf("the sealed request belongs to session %.60q, but came on the connection of %.60q",
			c.session, c.user)
	}
	return nil
}
