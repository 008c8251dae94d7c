package broker

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/queuegroup"
	"muster/internal/wire"
)

// calloutQueue is the queue group in which the provisioners share what brokers
// ask.
const calloutQueue = "muster-callout"

// Work on questions of brokers; chosen.
const (
	// calloutWorkersPerCore is how many answers are under way to brokers at once, for each
	// worker has one (see taken). So it is what bounds them where a broker is far: at 50 ms,
	// 300 a second with 16 and 1,030 with 64, of 1,220 with 128.
	// 128 of them are 32 ms of a broker's work.
	calloutWorkersPerCore = 64
	maxCalloutsWaiting    = 4096

	// maxCalloutWait is how long a question may have waited when its turn comes. When more
	// is asked than can be answered, all questions have waited that long when their turn comes. A broker
	// gives a client up after 5 s, and has work of its own before and after: with 4 s nearly
	// every answer came too late, so that all came again, and a storm of 20,000 nodes at
	// three brokers on two slow cores never ended. With a second, and nothing else, it took two
	// minutes (measured, make chaos); see taken for the rest.
	maxCalloutWait = time.Second
)

// callout answers what brokers ask about connections, with the gate that an
// embedded broker asks.
type callout struct {
	gate    *Gate
	issuer  nkeys.KeyPair
	xkey    nkeys.KeyPair
	refused func(context.Context, Presented, *Denied) // may be nil
	log     *natsLog
	fault   func() error // may be nil
	workers int          // how many answers are under way at once

	unread atomic.Pointer[unreadQuestion] // the last one; nil if there was none
}

// unreadQuestion is a question that could not be read.
type unreadQuestion struct {
	at  time.Time // monotonic
	err error
}

// question is a request of a broker's that waits for its answer.
type question struct {
	*nats.Msg
	since time.Time
}

// run answers until ctx is done, and then what it has taken. It returns once the
// last answer has left, or the error for which it cannot ask for questions.
func (c *callout) run(ctx context.Context, nc *nats.Conn, ready func()) error {
	questions := make(chan question, maxCalloutsWaiting)
	put := func(m *nats.Msg) {
		select {
		case questions <- question{m, time.Now()}:
		default: // the client of one behind so many has given up before it is answered
		}
	}
	work := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() {
			for q := range questions {
				if c.answer(work, q) {
					taken(work, nc)
				}
			}
		})
	}
	group := &queuegroup.Group{
		Conn:     nc,
		Name:     calloutQueue,
		Subjects: []string{server.AuthCalloutSubject},
		Take:     put,
		Fault:    c.fault,
	}
	err := group.Run(ctx, ready)
	close(questions)
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(admitTimeout))
}

// taken waits until the broker has taken what was sent to it. It reads answers one after
// the other, and takes as long for one as we do: what it has not read would be a queue in which late answers are not
// seen. So each worker has one answer under way, and questions wait where
// their age is checked. If the broker is another one than we are connected to this is
// only as far as that.
func taken(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	_ = nc.FlushWithContext(ctx) // the error says that the broker has gone, and its clients with it
}

// answer answers one question, unless its client has given up, and reports whether it did. Answering
// twice is harmless, since a broker takes the first answer: so is not answering,
// since the client comes back.
func (c *callout) answer(ctx context.Context, q question) bool {
	waited := time.Since(q.since) // not by the gate's clock, which may jump
	if waited > maxCalloutWait {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout-waited)
	defer cancel()
	broker := q.Header.Get(server.AuthRequestXKeyHeader)
	request, err := c.open(q.Data, broker)
	if err != nil {
		c.unread.Store(&unreadQuestion{time.Now(), err})
		c.log.connection(ctx, "broker asks in a way that is not understood", slog.String("err", scrub(err.Error())))
		return false
	}
	response := jwt.NewAuthorizationResponseClaims(request.UserNkey)
	response.Audience = request.Server.ID
	p, err := presentedTo(request)
	if err == nil {
		response.Jwt, err = c.admit(ctx, request, p)
	}
	if err != nil {
		response.Error = string(c.log.refuse(ctx, p, err, c.refused)) // for the broker's log
	}
	if err := c.respond(q, response, broker); err != nil {
		c.log.connection(ctx, "answer to a broker lost", slog.String("err", scrub(err.Error())))
		return false
	}
	return true
}

// respond signs an answer and sends it, encrypted to the broker.
func (c *callout) respond(q question, response *jwt.AuthorizationResponseClaims, broker string) error {
	text, err := response.Encode(c.issuer)
	if err != nil {
		return err
	}
	sealed, err := c.xkey.Seal([]byte(text), broker)
	if err != nil {
		return err
	}
	return q.Respond(sealed)
}

// open returns the request in data, which broker has encrypted to us. One in
// clear is not answered: the token of the connection was on the wire between
// brokers, and the configuration that we print does not do that.
func (c *callout) open(data []byte, broker string) (*jwt.AuthorizationRequestClaims, error) {
	if broker == "" {
		return nil, errors.New("the request is not encrypted: set auth_callout's xkey as `muster broker config` does")
	}
	text, err := c.xkey.Open(data, broker)
	if err != nil {
		return nil, errors.New("the request is encrypted to another xkey than broker.callout.xkey: all provisioners have the same file, and all servers the same `auth_callout`")
	}
	request, err := jwt.DecodeAuthorizationRequestClaims(string(text))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if !nkeys.IsValidPublicUserKey(request.UserNkey) { // package jwt returns nil for another one
		return nil, fmt.Errorf("request: about the user %.80q, want the public key of one", request.UserNkey)
	}
	return request, nil
}

// admit asks the gate and returns its admission as the user that the broker is
// to take the client for.
func (c *callout) admit(ctx context.Context, request *jwt.AuthorizationRequestClaims, p Presented) (string, error) {
	admission, err := c.gate.Authorize(ctx, p)
	if err != nil {
		return "", err
	}
	u := jwt.NewUserClaims(request.UserNkey)
	u.Audience = admission.Account
	// The broker reports this as the user of each request, as an embedded one
	// does: the name of a sealed session, if the gate has seen it proven.
	u.Name = cmp.Or(p.Nkey, admission.User)
	u.Permissions = userPermissions(admission)
	if !admission.Deadline.IsZero() {
		// Brokers have the real clock, and the gate ours; NATS counts whole seconds.
		left := max(admission.Deadline.Sub(c.gate.cfg.Now()), time.Second)
		u.Expires = time.Now().Add(left).Unix()
	}
	return u.Encode(c.issuer)
}

// userPermissions is the form in which a broker is told what a may do. Nothing
// in it means everything.
func userPermissions(a *Admission) (p jwt.Permissions) {
	p.Pub.Allow, p.Sub.Allow = a.Publish, a.Subscribe
	if a.Responses > 0 {
		p.Resp = &jwt.ResponsePermission{MaxMsgs: a.Responses, Expires: a.ResponseTTL}
	}
	return p
}

// presentedTo returns what a client presents to the broker that asks. The
// broker has verified the certificates; see present for what that leaves to do.
func presentedTo(r *jwt.AuthorizationRequestClaims) (Presented, error) {
	o := r.ConnectOptions
	p := Presented{
		Name:      o.Name,
		Token:     wire.Secret(o.Token),
		Nkey:      o.Nkey,
		Signature: o.SignedNonce,
		Nonce:     r.ClientInformation.Nonce,
		Address:   r.ClientInformation.Host,
	}
	if i := r.ClientInformation; i.Kind != "Client" || i.Type != "nats" && i.Type != "websocket" {
		return p, &Denied{wire.CodeDenied, fmt.Errorf("not a client connection: %.40s, %.40s", i.Kind, i.Type)}
	}
	if r.TLS == nil {
		return p, nil
	}
	if len(r.TLS.VerifiedChains) == 0 {
		if len(r.TLS.Certs) > 0 {
			return p, &Denied{wire.CodeDenied, ErrCertificate}
		}
		return p, nil
	}
	for _, text := range r.TLS.VerifiedChains[0] {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return p, &Denied{wire.CodeDenied, fmt.Errorf("%w: the broker sent no PEM", ErrCertificate)}
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return p, &Denied{wire.CodeDenied, fmt.Errorf("%w: %w", ErrCertificate, err)}
		}
		p.Certificates = append(p.Certificates, cert)
	}
	return p, nil
}
