package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
	"muster/internal/seal"
	"muster/internal/wire"
)

// Sealed mode. A token that names a key to seal to is presented sealed, and so
// is every request on a connection that presented one. There is no way back to
// plain: neither a broker that refuses, nor a reply that says it cannot open,
// nor anything else on the network makes the agent show its token. Only the
// file decides.

// sealKey returns the key that the token names. It is for tokens that name one.
func (t *token) sealKey() (seal.PublicKey, error) {
	k, err := seal.ParsePublicKey(t.limits.Seal)
	if err != nil {
		return seal.PublicKey{}, &cause{what: fmt.Errorf("token %s cannot be used: extensions.muster.seal: %w", t.file, err),
			remedy: "sign a token with the --seal of this fleet's provisioner and replace the file"}
	}
	return k, nil
}

// sealed reports whether the token asks for sealed mode.
func (t *token) sealed() bool { return t.limits.Seal != "" }

// connectToEnroll connects to b with the token, sealed if it asks for that.
func (s *Server) connectToEnroll(ctx context.Context, t *token, c *conf, b discover.Broker) (*connection, error) {
	credentials, session, err := t.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := s.connect(ctx, c, b, append(credentials, s.provisioningTLS(ctx, t, b)...)...)
	if err != nil {
		return nil, err
	}
	conn.session = session
	return conn, nil
}

// credentials returns the options that present the token. In sealed mode it is
// sealed in a session that is new for each connection, and the connection proves
// over the broker's nonce that the session is its own, so that what a listener
// records is of no use on another; the user and password that are in the token
// stay in it. The session is nil in plain mode.
func (t *token) credentials() ([]nats.Option, *seal.Session, error) {
	if !t.sealed() {
		options := []nats.Option{nats.Token(string(t.text))}
		if t.claims.Username != "" {
			options = append(options, nats.UserInfo(t.claims.Username, string(t.claims.Password)))
		}
		return options, nil, nil
	}
	key, err := t.sealKey()
	if err != nil {
		return nil, nil, err
	}
	session, err := seal.NewSession(key, t.text)
	if err != nil {
		return nil, nil, err
	}
	return []nats.Option{nats.Token(session.Token()), nats.Nkey(session.Name(), session.Prove)}, session, nil
}

// encode returns message as it is sent over the connection, and what decodes
// the replies to it.
func (c *connection) encode(message any) ([]byte, func([]byte) (*wire.Reply, error), error) {
	if c.session == nil {
		b, err := wire.Encode(message)
		return b, wire.DecodeReply, err
	}
	var b []byte
	var opener *seal.ReplyOpener
	var err error
	switch m := message.(type) {
	case *wire.EnrollRequest:
		b, opener, err = c.session.EncodeRequest(m)
	case *wire.Applied:
		b, opener, err = c.session.EncodeApplied(m)
	default:
		err = fmt.Errorf("a %T is never sent over a connection with a token", message)
	}
	if errors.Is(err, wire.ErrTooLarge) {
		err = &cause{what: err, remedy: "leave out facts, or sign a shorter token: sealing takes a third of what a message can hold"}
	}
	if err != nil {
		return nil, nil, err
	}
	return b, opener.DecodeReply, nil
}

// passedOver returns why a reply that could not be decoded was passed over.
// One that came in plain where it had to be sealed may be anybody's. It may also
// be a provisioner's that could not open the request, so what it says is worth
// a look by whoever reads the log; and it may slow the next attempt, since a
// provisioner that has no time to open requests has no other way to say so.
func passedOver(b []byte, err error) error {
	if !errors.Is(err, seal.ErrPlain) {
		return err
	}
	what := err
	if r, bad := wire.DecodeReply(b); bad == nil && r.Refusal != nil {
		what = &slowed{fmt.Errorf("%w: it says %q, %.*q", err, string(r.Refusal.Code), maxTold, r.Refusal.Message), r.Refusal.Wait()}
	}
	return &cause{what: what, remedy: "a reply that is not sealed is not believed; if the provisioner sent it, its log says what it could not do " +
		"with the request, and if it did not, something answers in its place"}
}

// slowed is an error after which the next attempt waits for a while at least.
type slowed struct {
	err  error
	wait time.Duration
}

func (e *slowed) Error() string { return e.err.Error() }
func (e *slowed) Unwrap() error { return e.err }

// slowedBy returns for how long err asks to wait; 0 if it does not.
func slowedBy(err error) time.Duration {
	var e *slowed
	if !errors.As(err, &e) {
		return 0
	}
	return e.wait
}
