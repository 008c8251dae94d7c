package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// request sends message on subject and returns the reply to it, waiting up to
// RequestTimeout. Whether the other side has acted on a request that got no
// reply is unknown; every request of this protocol can be repeated.
//
// Replies with another id are not for this request, whoever sent them, and are
// passed over; so is, on a sealed connection, all that does not open as a reply
// to this request. The wait for the real one goes on. What was passed over is
// in the error if none comes; see passedOver.
func (s *Server) request(ctx context.Context, conn *connection, subject, id string, message any) (*wire.Reply, error) {
	b, decode, err := conn.encode(message)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	inbox := conn.inbox + "." + wire.NewID()
	sub, err := conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone
	if err := conn.PublishRequest(subject, inbox, b); err != nil {
		return nil, err
	}
	s.step("sent " + subject)
	var passed error
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, requestError(conn, subject, errors.Join(err, passed))
		}
		reply, err := decode(m.Data)
		switch {
		case err != nil:
			passed = longer(passed, passedOver(m.Data, err))
		case reply.ID != id && !unreadable(reply):
			passed = longer(passed, errors.New("a reply to another request"))
		default:
			return reply, nil
		}
		s.cfg.Log.DebugContext(ctx, "reply passed over", "subject", subject, "err", passed)
	}
}

// longer returns b, or a if that asks for a longer wait.
func longer(a, b error) error {
	if slowedBy(a) > slowedBy(b) {
		return a
	}
	return b
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

// requestError says of a request that got no reply what the connection knows.
func requestError(conn *connection, subject string, err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) && conn.LastError() != nil {
		err = errors.Join(conn.LastError(), err)
	}
	return fmt.Errorf("broker %s: %s: %w", conn.broker, subject, oneLine(err))
}

// A refusal is a provisioner's refusal as an error.
type refusal struct{ *wire.Refusal }

// maxTold bounds how much of a refusal's text goes into the log.
const maxTold = 512

func (r refusal) Error() string {
	return fmt.Sprintf("%s: %.*s", r.Code, maxTold, r.Message)
}

// remedy is what the refusal says to do, or what we know of its code.
func (r refusal) remedy() string {
	if r.Remedy != "" {
		return fmt.Sprintf("%.*s", maxTold, r.Remedy)
	}
	return wire.MeaningOf(r.Code).Remedy
}
