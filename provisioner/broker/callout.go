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

const calloutQueue = "muster-callout"

const (
	// calloutWorkersPerCore bounds the concurrent answers. With a broker 50 ms away, 16 workers gave 300 answers a
	// second, 64 gave 1,030, 128 gave 1,220.
	calloutWorkersPerCore = 64
	maxCalloutsWaiting    = 4096

	// Older requests get no answer. Brokers drop a client after 5 s, and under overload every request waits this
	// long. With 4 s, a storm of 20,000 nodes never ended; with 1 s it took two minutes (make chaos).
	maxCalloutWait = time.Second
)

type callout struct {
	gate    *Gate
	keys    keyPairs
	refused func(context.Context, Presented, *Denied) // may be nil
	log     *natsLog
	fault   func() error // may be nil
	workers int          // concurrent answers at most

	unread atomic.Pointer[unreadableRequest] // nil if there was none
}

type unreadableRequest struct {
	at  time.Time // monotonic
	err error
}

type calloutRequest struct {
	*nats.Msg
	since time.Time
}

// run answers requests until ctx is done, then those already received.
func (c *callout) run(ctx context.Context, nc *nats.Conn, ready func()) error {
	requests := make(chan calloutRequest, maxCalloutsWaiting)
	put := func(m *nats.Msg) {
		select {
		case requests <- calloutRequest{m, time.Now()}:
		default: // too many are waiting: the client would give up before its turn
		}
	}
	work := context.WithoutCancel(ctx)
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() {
			for q := range requests {
				if c.answer(work, q) {
					awaitDelivery(work, nc)
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
	close(requests)
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(admitTimeout))
}

// awaitDelivery waits until the broker has read the answer. So requests wait in the queue, where their age is
// checked.
func awaitDelivery(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	_ = nc.FlushWithContext(ctx) // an error means that the broker and its clients are gone
}

// answer reports whether it answered. A second or missing answer is harmless: the broker takes the first, and the
// client reconnects.
func (c *callout) answer(ctx context.Context, q calloutRequest) bool {
	waited := time.Since(q.since) // the gate's clock may jump
	if waited > maxCalloutWait {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout-waited)
	defer cancel()
	broker := q.Header.Get(server.AuthRequestXKeyHeader)
	request, err := c.open(q.Data, broker)
	if err != nil {
		c.unread.Store(&unreadableRequest{time.Now(), err})
		c.log.connection(ctx, "", "callout request of a broker could not be read",
			slog.String("err", scrub(err.Error())))
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
		c.log.connection(ctx, "", "answer to a broker could not be sent", slog.String("err", scrub(err.Error())))
		return false
	}
	return true
}

func (c *callout) respond(q calloutRequest, response *jwt.AuthorizationResponseClaims, broker string) error {
	text, err := response.Encode(c.keys.issuer)
	if err != nil {
		return err
	}
	sealed, err := c.keys.xkey.Seal([]byte(text), broker)
	if err != nil {
		return err
	}
	return q.Respond(sealed)
}

// open refuses unencrypted requests, which expose tokens on the network.
func (c *callout) open(data []byte, broker string) (*jwt.AuthorizationRequestClaims, error) {
	if broker == "" {
		return nil, errors.New("the request is not encrypted: set auth_callout's xkey as `muster broker config` does")
	}
	text, err := c.keys.xkey.Open(data, broker)
	if err != nil {
		return nil, errors.New("the request is encrypted to another xkey than broker.callout.xkey: " +
			"use the same key file on all provisioners and the same `auth_callout` on all servers")
	}
	request, err := jwt.DecodeAuthorizationRequestClaims(string(text))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if !nkeys.IsValidPublicUserKey(request.UserNkey) { // for another key, package jwt returns nil
		return nil, fmt.Errorf("request: user nkey %.80q is not a public user key", request.UserNkey)
	}
	return request, nil
}

func (c *callout) admit(ctx context.Context, request *jwt.AuthorizationRequestClaims, p Presented) (string, error) {
	admission, err := c.gate.Authorize(ctx, p)
	if err != nil {
		return "", err
	}
	u := jwt.NewUserClaims(request.UserNkey)
	u.Audience = admission.Account
	// The broker reports this name with each request.
	u.Name = cmp.Or(p.Nkey, admission.User)
	u.Permissions = userPermissions(admission)
	if !admission.Deadline.IsZero() {
		// Brokers check the expiry by the real clock, in whole seconds.
		left := max(admission.Deadline.Sub(c.gate.cfg.Now()), time.Second)
		u.Expires = time.Now().Add(left).Unix()
	}
	return u.Encode(c.keys.issuer)
}

func userPermissions(a *Admission) (p jwt.Permissions) {
	p.Pub.Allow, p.Sub.Allow = a.Publish, a.Subscribe
	if a.Responses > 0 {
		p.Resp = &jwt.ResponsePermission{MaxMsgs: a.Responses, Expires: a.ResponseTTL}
	}
	return p
}

// presentedTo trusts the broker's verification of certificates.
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
