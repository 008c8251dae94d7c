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

	"muster/internal/wire"
)

// calloutQueue is the queue group in which the provisioners share what brokers
// ask.
const calloutQueue = "muster-callout"

// Work on questions of brokers; chosen.
const (
	// calloutWorkersPerCore is how many answers are under way to brokers at once, for each
	// worker has one (see taken). So it is what bounds them where a broker is far: at 50 ms,
	// 300 a second with 16 and 1,030 with 64, of 1,220 with 128 (BenchmarkConnectThroughCalloutFar).
	// 128 of them are 32 ms of a broker's work.
	calloutWorkersPerCore = 64
	maxCalloutsWaiting    = 4096

	// maxCalloutWait is how long a question may have waited when its turn comes. When more
	// is asked than can be answered, all who get their turn have waited that long. A broker
	// gives a client up after 5 s, and has work of its own before and after: with 4 s nearly
	// every answer came too late, so that all came again, and a storm of 20,000 nodes at
	// three brokers on two slow cores never ended. With a second, and nothing else, it took two
	// minutes (measured, make chaos); see taken for the rest.
	maxCalloutWait = time.Second
)

// callout answers what brokers ask about connections, with the gate that an
// embedded broker asks.
type callout struct {
	gate      *Gate
	issuer    nkeys.KeyPair
	xkey      nkeys.KeyPair
	refused   func(context.Context, Presented, *Denied) (late bool)
	log       *natsLog
	withdrawn func() (withdrawn bool, changed <-chan struct{})
	workers   int // how many answers are under way at once
	shares    *shares
	arrivals  *arrivals
	held      held
	counted   func(server string) bool // whether we hear who is connected there

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
		default: // whoever waits behind so many has given up before it is answered
		}
	}
	work := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	later := func(send func()) {
		workers.Go(func() { // who calls it is one of them
			c.held.wait(ctx)
			send()
		})
	}
	for range c.workers {
		workers.Go(func() {
			for q := range questions {
				if c.answer(work, q, later) {
					taken(work, nc)
				}
			}
		})
	}
	err := c.keepSubscribed(ctx, nc, put, ready)
	close(questions)
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(admitTimeout))
}

// keepSubscribed takes questions, with the other provisioners of the queue group, until ctx is done, except while
// this process has withdrawn from it. It keeps the connection: a process whose clock is behind may take no broker's
// certificate for valid, and could not come back. It returns once no more questions come.
func (c *callout) keepSubscribed(ctx context.Context, nc *nats.Conn, put nats.MsgHandler, ready func()) error {
	var sub *nats.Subscription
	for begun := false; ; begun = true {
		withdrawn, changed := c.withdrawn()
		var err error
		switch {
		case withdrawn && sub != nil:
			err, sub = drain(sub), nil
		case !withdrawn && sub == nil:
			if sub, err = nc.QueueSubscribe(server.AuthCalloutSubject, calloutQueue, put); err == nil && !begun {
				err = nc.Flush() // later the broker may be away, and hears of it when it is back
			}
		}
		if err != nil {
			nc.Close() // or questions might still come
			return fmt.Errorf("subscribe %s: %w", server.AuthCalloutSubject, err)
		}
		if ready != nil && !begun {
			ready()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if sub != nil {
				_ = drain(sub) // the error says that the connection has gone, and with it the questions
			}
			return nil
		}
	}
}

// drain ends the subscription and returns when the last question that the broker had
// already sent has been taken.
func drain(sub *nats.Subscription) error {
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	if err := sub.Drain(); err != nil {
		return err
	}
	<-ended
	return nil
}

// taken waits until the broker has taken what was sent to it. It reads answers one after
// the other, and takes as long for one as we do: what it has not read would be a queue in which nobody
// sees that it is too late. So each of us has one answer under way, and who waits does so where
// the time is looked at. If the broker is another one than we are connected to this is
// only as far as that.
func taken(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	_ = nc.FlushWithContext(ctx) // the error says that the broker has gone, and its clients with it
}

// answer answers one question, unless nobody waits for it any more, and reports
// whether it did; who is to hear of a refusal late is answered by what it gives to later. Answering
// twice is harmless, since a broker takes the first answer: so is not answering,
// since the client comes back.
func (c *callout) answer(ctx context.Context, q question, later func(send func())) bool {
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
	p, err := presentedTo(request)
	var user string
	if err == nil {
		user, err = c.admit(ctx, request, p)
	}
	response := jwt.NewAuthorizationResponseClaims(request.UserNkey)
	response.Audience, response.Jwt = request.Server.ID, user
	late := false
	if err != nil {
		d := deny(wire.CodeDenied, err)
		late = c.refuse(ctx, p, d)
		response.Jwt, response.Error = "", string(d.Code) // for the broker's log
	}
	text, err := response.Encode(c.issuer)
	if err != nil {
		c.log.connection(ctx, "answer to a broker not signed", slog.String("err", scrub(err.Error())))
		return false
	}
	sealed, err := c.xkey.Seal([]byte(text), broker)
	if late && err == nil {
		later(func() { c.lost(ctx, q.Respond(sealed)) })
		return false
	}
	if err == nil {
		err = q.Respond(sealed)
	}
	c.lost(ctx, err)
	return err == nil
}

// lost says so if an answer did not leave.
func (c *callout) lost(ctx context.Context, err error) {
	if err != nil {
		c.log.connection(ctx, "answer to a broker lost", slog.String("err", scrub(err.Error())))
	}
}

// refuse tells who has to know of it that a connection is refused, and reports whether that one is to
// hear of it late.
func (c *callout) refuse(ctx context.Context, p Presented, d *Denied) (late bool) {
	p = p.withoutSecrets()
	c.log.refused(ctx, p, d)
	return c.refused != nil && c.refused(ctx, p, d)
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
	if !nkeys.IsValidPublicUserKey(request.UserNkey) { // package jwt has no answer about nobody, nil instead of one
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
	switch admission.Account {
	case AccountFleet:
		c.arrivals.add(wire.Identity(admission.User))
	case AccountProvisioning:
		if c.counted(request.Server.ID) && !c.shares.take(request.Server.Tags, admission.Token, p.Address) {
			// In an account without any place the client is told what it would be told if there was none
			// in its own. A refusal is "Authorization Violation", and machines would take it for their token's.
			u.Audience = AccountFull
			c.refuse(ctx, p, &Denied{wire.CodeBusy, ErrShare})
		}
	}
	// The broker reports this as the user of each request, as an embedded one
	// does: the name of a sealed session, if the gate has seen it proven. Behind it
	// is what connections are counted by.
	u.Name = cmp.Or(p.Nkey, admission.User)
	if admission.Account == AccountProvisioning {
		u.Name = wire.UserWithToken(u.Name, admission.Token)
	}
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
func userPermissions(a *Admission) jwt.Permissions {
	var p jwt.Permissions
	if isEverything(a.Publish) && isEverything(a.Subscribe) {
		return p
	}
	p.Pub, p.Sub = userPermission(a.Publish), userPermission(a.Subscribe)
	if a.Responses > 0 {
		p.Resp = &jwt.ResponsePermission{MaxMsgs: a.Responses, Expires: a.ResponseTTL}
	}
	return p
}

func userPermission(list []string) jwt.Permission {
	if len(list) == 0 {
		return jwt.Permission{Deny: jwt.StringList{">"}}
	}
	return jwt.Permission{Allow: list}
}

// presentedTo returns what a client presents to the broker that asks. The
// broker has verified the certificates; see present for what that leaves to do.
func presentedTo(r *jwt.AuthorizationRequestClaims) (Presented, error) {
	o := r.ConnectOptions
	p := Presented{
		Name: o.Name, Token: wire.Secret(o.Token), Username: o.Username, Password: wire.Secret(o.Password),
		Nkey: o.Nkey, Signature: o.SignedNonce, Nonce: r.ClientInformation.Nonce, Address: r.ClientInformation.Host,
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
