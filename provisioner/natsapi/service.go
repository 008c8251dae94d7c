// Package natsapi is the edge between NATS and the provisioner: it takes
// requests off the subjects of enrollment and renewal, decodes them, has them decided
// and sends the replies.
//
// It trusts nothing in a message. Who sent it, it takes from the broker: the
// services are imported with `share: true`, so each request carries the
// connection's address, account and user in a header that clients cannot set
// (package broker).
//
// Work in hand is bounded. A request for which there is no room is answered
// `busy` at once, with a time to come back at that spreads the backlog over the
// measured rate ([limit.Backlog]); see busy.go.
//
// Sealed requests are opened here, by the workers, and whatever is said to them
// from then on is sealed as well; see sealed.go.
package natsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/internal/queuegroup"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner"
)

// placeBytes is how large a request may be that takes one place of [Config.Queue]: a machine with 2 KB of
// facts sends 4.
const placeBytes = 8 << 10

// flushTimeout bounds, at the stop, the way of the last replies to the broker,
// which may be a slow one: what is not there then is asked for again.
const flushTimeout = 30 * time.Second

// Config configures [New].
type Config struct {
	Conn         *nats.Conn               // required: to the account MUSTER
	Provisioner  *provisioner.Provisioner // required
	Installation string                   // required: id of the store, in every reply

	// Opener opens sealed requests. Optional; without one they are answered
	// [wire.CodeSealedUnsupported], in plain.
	Opener *seal.Opener

	// Budget is charged for opening what strangers sealed. Share it with the
	// provisioner.
	Budget *provisioner.Budget

	// Prefix stands before all subjects, for a service of its own beside
	// others. Optional.
	Prefix string

	// Workers is how many requests are worked on at once. Most of that time
	// is waiting for the disk, so it is far above the number of cores.
	// Optional; default 256.
	Workers int

	// Queue is how many more may wait, confirmations and others each, if all come from one address
	// ([provisioner.Source.Key]), and twice as many if they come from several; one of more than
	// [placeBytes] counts as several. Optional; default 2048: at the slowest disk measured (1 ms a write)
	// both are served in four seconds, well within the 15 for which a node waits for its reply.
	Queue int

	// MaxWait is how long a request may have waited when its turn comes; one that is older is
	// answered `busy`. Its node waits 15 s for the reply, and the work has its time besides: who is
	// served later gets a reply that nobody hears any more, and asks for the same again. A cluster on
	// two slow cores finished 100 a second, so that the last of a full queue waited for 20 s: when
	// it had served 10,036, some 4,000 nodes had heard of theirs (a storm of 20,000, make chaos).
	// Optional; default 5 s, a third of the node's time, chosen.
	MaxWait time.Duration

	// InHand counts the requests that are being worked on, for the store to know
	// how many writes are on their way. Optional; several services may share one.
	InHand *atomic.Int64

	// Fault returns why this process must leave the requests to others, nil if it may answer. It must not block.
	// Optional.
	Fault func() error

	// Busy is called for each request that finds no room. It must not block.
	// Optional.
	Busy func()

	// Timeout bounds the work for one request. Optional; default 30 s.
	Timeout time.Duration

	// Log is optional; discards by default.
	Log *slog.Logger
}

// A Service answers enroll requests, renewals and confirmations. Make one with [New] and
// start it with Run.
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

// Run serves until ctx is done. It then takes no further request, finishes all
// that it has taken, flushes the replies and returns nil. Any other return
// means that it could not begin, could not drain, or could not join the queue group again.
//
// Run owns every goroutine of the package. ready, if not nil, is called once
// requests are being taken, or this process has found that it must not.
func (s *Service) Run(ctx context.Context, ready func()) error {
	// Requests in hand are finished while stopping: a node whose request was
	// taken gets its reply.
	work := context.WithoutCancel(ctx)
	waiting := newQueue(2*s.cfg.Queue, placeBytes)
	excess := newQueue(maxExcessBytes/excessPlace, excessPlace)
	take := func(m *nats.Msg) {
		if m.Reply == "" {
			// Nothing waits for the answer, or it is one of our own that a
			// requester has aimed at us: answering those would go on forever.
			return
		}
		c, confirmation := newCall(m), s.isApplied(m)
		if !waiting.put(c, confirmation) && !excess.put(c, confirmation) {
			s.cfg.Busy() // see busy.go
		}
	}
	// Without a queue group: every process hears every node.
	events := newEvents()
	heard, err := s.cfg.Conn.Subscribe(wire.AllNodeEvents, events.put)
	if err != nil {
		return fmt.Errorf("nats edge: subscribe %s: %w", wire.AllNodeEvents, err)
	}
	var g errgroup.Group
	for range s.cfg.Workers {
		g.Go(func() error {
			withStack(func() { waiting.each(func(w *waiter) { s.turn(work, w) }) })
			return nil
		})
	}
	for range busyWorkers() {
		g.Go(func() error {
			excess.each(func(w *waiter) { s.busy(work, w.call) })
			return nil
		})
	}
	g.Go(func() error {
		for m := range events.queue {
			events.took(m)
			s.hear(work, m)
		}
		return nil
	})
	err = s.group(take).Run(ctx, ready)
	s.cfg.Log.InfoContext(work, "provisioner stopping, requests in hand are finished first", "requests", s.cfg.InHand.Load()+int64(waiting.len()))
	if err = errors.Join(err, queuegroup.Drain(heard)); err != nil {
		err = fmt.Errorf("nats edge: %w", err)
	}
	waiting.close() // there is no call of take any more
	close(events.queue)
	excess.close()
	if werr := g.Wait(); werr != nil {
		err = errors.Join(err, werr)
	}
	if ferr := s.cfg.Conn.FlushTimeout(flushTimeout); ferr != nil {
		err = errors.Join(err, fmt.Errorf("nats edge: flush replies: %w", ferr))
	}
	return err
}

// group is the queue group in which provisioners share requests.
func (s *Service) group(take nats.MsgHandler) *queuegroup.Group {
	return &queuegroup.Group{
		Conn:     s.cfg.Conn,
		Name:     wire.QueueProvisioners,
		Subjects: []string{s.cfg.Prefix + wire.SubjectEnroll, s.cfg.Prefix + wire.SubjectApplied, s.cfg.Prefix + wire.SubjectRenew},
		Take:     take,
		Fault:    s.cfg.Fault,
	}
}

// turn answers a request whose turn has come. One that has waited for too long is told to come
// back, as if there had been no room: so no more is begun than can be done in time.
func (s *Service) turn(ctx context.Context, w *waiter) {
	if time.Since(w.since) > s.cfg.MaxWait { // not by the service's clock, which may jump
		s.busy(ctx, w.call)
		return
	}
	s.serve(ctx, w.call)
}

// serve answers one request.
func (s *Service) serve(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	s.cfg.InHand.Add(1)
	reply := s.answer(ctx, c)
	s.cfg.InHand.Add(-1)
	if !s.isApplied(c.Msg) { // a node that finds no room comes back to begin; the confirmation is part of that
		s.measure(reply)
	}
	s.respond(ctx, c, reply)
}

// measure counts an answer for the rate at which nodes come back. One that was told to come back before anything was
// done for it does not count.
func (s *Service) measure(r *wire.Reply) {
	code := wire.Code("")
	if r.Refusal != nil {
		code = r.Refusal.Code
	}
	switch code {
	case wire.CodeStoreUnavailable:
		s.backlog.Stalled()
	case wire.CodeBusy:
	default:
		s.backlog.Done()
	}
}

// survive ends a panic over one message, which is logged. Defer it.
func (s *Service) survive(ctx context.Context, m *nats.Msg) {
	if r := recover(); r != nil {
		s.cfg.Log.ErrorContext(ctx, "message panicked", "subject", m.Subject, "err", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// answer decides over a request. A panic on the way is a bug, but one request
// must not take the others down with it: Choria's provisioner died of a single
// CSR that was not PEM.
func (s *Service) answer(ctx context.Context, c *call) (reply *wire.Reply) {
	reply = &wire.Reply{Refusal: (&provisioner.Refusal{Code: wire.CodeUnavailable}).Message()} // after a panic
	defer s.survive(ctx, c.Msg)
	if c.forged {
		return s.malformed(ctx, errForged, c)
	}
	switch c.Subject {
	case s.cfg.Prefix + wire.SubjectApplied:
		return s.applied(ctx, c)
	case s.cfg.Prefix + wire.SubjectRenew:
		return s.renew(ctx, c)
	}
	return s.enroll(ctx, c)
}

func (s *Service) isApplied(m *nats.Msg) bool { return m.Subject == s.cfg.Prefix+wire.SubjectApplied }

func (s *Service) enroll(ctx context.Context, c *call) *wire.Reply {
	r, err := decode(s, c, wire.DecodeEnroll)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	if err := s.ofItsConnection(c); err != nil {
		return &wire.Reply{ID: r.ID, Refusal: s.cfg.Provisioner.Reject(ctx, wire.CodeSealedInvalid, err, c.source).Message()}
	}
	enrolled, err := s.cfg.Provisioner.Enroll(ctx, r, c.source)
	if err != nil {
		return &wire.Reply{ID: r.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: r.ID, Enrolled: enrolled}
}

// renew answers a renewal. It is never sealed: its connection is TLS.
func (s *Service) renew(ctx context.Context, c *call) *wire.Reply {
	r, err := wire.DecodeRenew(c.Data)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	enrolled, err := s.cfg.Provisioner.Renew(ctx, r, c.source)
	if err != nil {
		return &wire.Reply{ID: r.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: r.ID, Enrolled: enrolled}
}

func (s *Service) applied(ctx context.Context, c *call) *wire.Reply {
	a, err := decode(s, c, wire.DecodeApplied)
	if err != nil {
		return s.malformed(ctx, err, c)
	}
	if err := s.cfg.Provisioner.Applied(ctx, a, c.source); err != nil {
		return &wire.Reply{ID: a.ID, Refusal: message(err)}
	}
	return &wire.Reply{ID: a.ID, Applied: &wire.Accepted{Serial: a.Serial}}
}

// malformed answers what could not be opened or decoded.
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
	refusal := s.cfg.Provisioner.Reject(ctx, code, err, c.source).Message()
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

// respond sends a reply, sealed if the request was. If it is lost, the node asks
// again.
func (s *Service) respond(ctx context.Context, c *call, reply *wire.Reply) {
	reply.Installation = s.cfg.Installation
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

// A call is a request with what is known of its sender.
type call struct {
	*nats.Msg
	source  provisioner.Source
	user    string            // of the connection, as the broker reports it: the session's name if it has proven one
	sealer  *seal.ReplySealer // of a sealed request that was opened, else nil
	session string            // of that, its name: an encapsulated key, which is never empty
	forged  bool              // more than the broker has said of the sender: see newCall
}

// errForged means that a request came with headers of its own: one of them may be
// one that only the broker writes.
var errForged = errors.New("the request carries headers beside the broker's " + requestInfoHeader)

// accountFleet is broker.AccountFleet: edges do not import each other.
const accountFleet = "FLEET"

// requestInfoHeader is what the broker says of a requester, in place of what the
// client may have said under that name. But it can be had to miss the client's
// (nats-server 2.15.2 gives up where the name stands twice in a row, as in the
// value of another header, and knows no line but one behind CRLF), and its own
// can be had to be missed: nats.go takes LF for the end of a line, and stops at
// an empty one, behind which the broker writes. So it is believed where it is all
// that there is; our nodes send no headers.
const requestInfoHeader = "Nats-Request-Info"

// requestInfo is the part that we use of what the broker says of a requester,
// in the header that `share: true` adds (server.ClientInfo of nats-server).
type requestInfo struct {
	Host    string `json:"host"`
	Server  string `json:"server"` // what the server that the client is at calls itself
	Account string `json:"acc"`
	User    string `json:"user"` // what the gate registered: in accountFleet the identity in the certificate, else the name of the sealed session if one was proven
}

// newCall takes the sender of a message from what the broker says. Who adds
// anything to that is refused, and of him nothing is known.
func newCall(m *nats.Msg) *call {
	header := m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data)
	if header == 0 {
		return &call{Msg: m} // from an account of our own
	}
	said := m.Header[requestInfoHeader]
	if len(m.Header) != 1 || len(said) != 1 || header != len("NATS/1.0\r\n"+requestInfoHeader+": "+"\r\n\r\n")+len(said[0]) {
		return &call{Msg: m, forged: true}
	}
	var info requestInfo                         // an empty address is "unknown"
	_ = wire.DecodeKnown([]byte(said[0]), &info) // the broker's; what cannot be read is empty
	c := &call{Msg: m, source: provisioner.Source{Address: info.Host, Server: info.Server}}
	c.user = info.User
	if info.Account == accountFleet {
		c.source.Node = wire.Identity(c.user) // the gate has parsed it
	}
	return c
}
