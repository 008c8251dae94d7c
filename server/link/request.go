package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/server/advice"
)

// A Refusal is a provisioner's refusal as an error, in the agent's own words: a plain one may be forged.
type Refusal struct{ *wire.Refusal }

// A Reply is a reply with what proves it.
type Reply struct {
	*wire.Reply
	Request []byte // as it was sent
	Sealed  bool   // the reply came sealed; else see [trust.Authority.CheckReply]
}

func (r Refusal) Error() string { return string(r.Code) + ": " + wire.MeaningOf(r.Code).Public }

// Remedy returns the remedy of the refusal's code.
func (r Refusal) Remedy() string { return wire.MeaningOf(r.Code).Remedy }

// Unanswered is an error of a request to which the provisioner gave no final answer.
type Unanswered struct{ Err error }

func (e Unanswered) Error() string { return e.Err.Error() }
func (e Unanswered) Unwrap() error { return e.Err }

type withWait struct {
	error
	wait time.Duration
}

func (e *withWait) Unwrap() error { return e.error }

// WithWait returns err with a minimum wait before the next attempt.
func WithWait(err error, wait time.Duration) error { return &withWait{err, wait} }

// WaitOf returns the wait that err asks for; 0: none.
func WaitOf(err error) time.Duration {
	var e *withWait
	if !errors.As(err, &e) {
		return 0
	}
	return e.wait
}

// Request sends message on subject and returns its reply. After an error the request may have been processed; every
// request can be repeated.
//
// Request ignores replies with another id and, on a sealed connection, replies that do not open: it keeps waiting for
// the real reply. If none comes, the error names an ignored one, which may delay the next attempt.
func (c *Conn) Request(ctx context.Context, subject, id string, message any) (*Reply, error) {
	b, decode, err := c.encode(message)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.dialer.cfg.Timeout)
	defer cancel()
	inbox := c.inbox + "." + wire.NewID()
	sub, err := c.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.PublishRequest(subject, inbox, b); err != nil {
		return nil, err
	}
	c.dialer.cfg.Step("sent " + subject)
	var passed error
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			if errors.Is(err, nats.ErrConnectionClosed) && c.LastError() != nil {
				err = errors.Join(c.LastError(), err)
			}
			return nil, fmt.Errorf("broker %s: %s: %w", c.Broker, subject, OneLine(errors.Join(err, passed)))
		}
		reply, err := decode(m.Data)
		switch {
		case err == nil && (reply.ID == id || unreadable(reply)):
			return &Reply{Reply: reply, Request: b, Sealed: c.session != nil}, nil
		case err == nil:
			err = errors.New("reply to another request")
		default:
			err = whyIgnored(m.Data, err)
		}
		if passed == nil || WaitOf(err) > WaitOf(passed) {
			passed = err
		}
		c.dialer.cfg.Log.DebugContext(ctx, "reply ignored", "subject", subject, "err", err)
	}
}

// unreadable reports whether a refusal has no id because the request's id could not be read.
func unreadable(r *wire.Reply) bool {
	if r.ID != "" || r.Refusal == nil {
		return false
	}
	switch r.Refusal.Code {
	case wire.CodeBadRequest, wire.CodeTooLarge, wire.CodeUnsupportedVersion, wire.CodeSealedUnsupported:
		return true
	}
	return false
}

// encode returns the encoded message and the decoder of its replies. If the connection presented a sealed token, it
// seals every message, so that nothing on the network can make the agent reveal its token.
func (c *Conn) encode(message any) ([]byte, func([]byte) (*wire.Reply, error), error) {
	if c.session == nil {
		b, err := wire.Encode(message)
		return b, wire.DecodeReply, err
	}
	b, opener, err := c.session.Encode(message)
	if errors.Is(err, wire.ErrTooLarge) {
		err = advice.New(err, "send fewer facts, or sign a shorter token: sealing takes a third of the size limit")
	}
	if err != nil {
		return nil, nil, err
	}
	return b, opener.DecodeReply, nil
}

// whyIgnored returns why a reply was ignored. An unsealed reply to a sealed request is not trusted, but may delay the
// next attempt: an overloaded provisioner does not open requests and so cannot seal its reply.
func whyIgnored(b []byte, err error) error {
	if !errors.Is(err, seal.ErrPlain) {
		return err
	}
	if r, bad := wire.DecodeReply(b); bad == nil && r.Refusal != nil {
		err = WithWait(fmt.Errorf("%w: it says %q", err, Refusal{r.Refusal}.Error()), r.Refusal.Wait())
	}
	return advice.New(err,
		"the node ignores unsealed replies; if the provisioner sent this one, its log says why; "+
			"otherwise another program answers in its place")
}
