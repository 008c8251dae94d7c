package simnode

import (
	"net"

	"github.com/nats-io/nats.go"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
)

// credentials returns the options that present a token, sealed in a new session if the token names a seal key. It
// presents malformed tokens unchanged.
func credentials(token string) ([]nats.Option, error) {
	t, err := jwt.Peek(token)
	if err != nil || t.Limits.Seal == "" {
		return []nats.Option{nats.Token(token)}, nil //nolint:nilerr // a node may present anything
	}
	key, err := seal.ParsePublicKey(t.Limits.Seal)
	if err != nil {
		return nil, err
	}
	session, err := seal.NewSession(key, wire.Secret(token))
	if err != nil {
		return nil, err
	}
	return []nats.Option{nats.Token(session.Token()), nats.Nkey(session.Name(), session.Prove),
		nats.SetCustomDialer(&dialer{net.Dialer{Timeout: dialTimeout}, session})}, nil
}

// dialer dials as the agent does, for brokers that admit slowly. It also keeps the session of its connection, since
// nats.Conn cannot.
type dialer struct {
	net.Dialer
	session *seal.Session // nil: not sealed
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return wire.NewEarlyPingConn(conn), nil
}

// Session returns the session of nc; nil: not sealed.
func Session(nc *nats.Conn) *seal.Session {
	d, ok := nc.Opts.CustomDialer.(*dialer)
	if !ok {
		return nil
	}
	return d.session
}

// Encode encodes a message in a session, and returns the decoder of its replies. A nil session does not seal.
func Encode(session *seal.Session, message any) ([]byte, func(reply []byte) (*wire.Reply, error), error) {
	if session == nil {
		b, err := wire.Encode(message)
		return b, wire.DecodeReply, err
	}
	b, opener, err := session.Encode(message)
	return b, opener.DecodeReply, err
}
