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

// maxTold bounds how much of a refusal's text goes into the log.
const maxTold = 512

// A Refusal is a provisioner's refusal as an error.
type Refusal struct{ *wire.Refusal }

func (r Refusal) Error() string { return fmt.Sprintf("%s: %.*s", r.Code, maxTold, r.Message) }

// Remedy is what the refusal says to do, or what is known of its code.
func (r Refusal) Remedy() string {
	if r.Refusal.Remedy != "" {
		return fmt.Sprintf("%.*s", maxTold, r.Refusal.Remedy)
	}
	return wire.MeaningOf(r.Code).Remedy
}

type slowed struct {
	err  error
	wait time.Duration
}

func (e *slowed) Error() string { return e.err.Error() }
func (e *slowed) Unwrap() error { return e.err }

// Slow returns err as one after which the next attempt waits for at least wait.
func Slow(err error, wait time.Duration) error { return &slowed{err, wait} }

// SlowedBy returns for how long err asks to wait; 0 if it does not.
func SlowedBy(err error) time.Duration {
	var e *slowed
	if !errors.As(err, &e) {
		return 0
	}
	return e.wait
}

// Request sends message on subject and returns the reply to it. Whether the
// other side has acted on a request that got no reply is unknown; every request
// of this protocol can be repeated.
//
// Replies with another id are passed over, and so is, on a sealed connection,
// all that does not open as a reply to this request: the wait for the real one
// goes on. What was passed over is in the error if none comes, and may slow the
// next attempt.
func (c *Conn) Request(ctx context.Context, subject, id string, message any) (*wire.Reply, error) {
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
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone
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
			return reply, nil
		case err == nil:
			err = errors.New("a reply to another request")
		default:
			err = passedOver(m.Data, err)
		}
		if passed == nil || SlowedBy(err) > SlowedBy(passed) {
			passed = err
		}
		c.dialer.cfg.Log.DebugContext(ctx, "reply passed over", "subject", subject, "err", err)
	}
}

// unreadable reports whether a reply says that the request's id could not be
// read, which is the only reason for not repeating it.
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

// encode returns message as it is sent over the connection, and what decodes
// the replies to it. On a connection that presented a sealed token everything is
// sealed: nothing on the network makes the agent show its token.
func (c *Conn) encode(message any) ([]byte, func([]byte) (*wire.Reply, error), error) {
	if c.session == nil {
		b, err := wire.Encode(message)
		return b, wire.DecodeReply, err
	}
	b, opener, err := c.session.Encode(message)
	if errors.Is(err, wire.ErrTooLarge) {
		err = advice.New(err, "leave out facts, or sign a shorter token: sealing takes a third of what a message can hold")
	}
	if err != nil {
		return nil, nil, err
	}
	return b, opener.DecodeReply, nil
}

// passedOver returns why a reply that could not be decoded was passed over. One
// that came in plain where it had to be sealed is not believed, but may slow the
// next attempt: a provisioner that has no time to open requests has no other way
// to say so.
func passedOver(b []byte, err error) error {
	if !errors.Is(err, seal.ErrPlain) {
		return err
	}
	if r, bad := wire.DecodeReply(b); bad == nil && r.Refusal != nil {
		err = Slow(fmt.Errorf("%w: it says %q, %.*q", err, string(r.Refusal.Code), maxTold, r.Refusal.Message),
			r.Refusal.Wait())
	}
	return advice.New(err,
		"a reply that is not sealed is not believed; if the provisioner sent it, its log says what it could "+
			"not do with the request, and if it did not, something answers in its place")
}
