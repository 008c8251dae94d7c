package simnode

import (
	"errors"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
)

// credentials returns the options that present a token: as it is, or sealed for
// an nkey of this connection alone, if the token names a key to seal to. What is
// no token is presented as it is.
func credentials(token string) ([]nats.Option, error) {
	t, err := jwt.Peek(token)
	if err != nil || t.Limits.Seal == "" {
		return []nats.Option{nats.Token(token)}, nil //nolint:nilerr // a node may present anything
	}
	key, err := seal.ParsePublicKey(t.Limits.Seal)
	if err != nil {
		return nil, err
	}
	return Sealed(key, token)
}

// Sealed returns the options of a connection that presents a token sealed to
// key, whatever the token says, and whose requests [Enroll] and [Apply] seal.
func Sealed(key seal.PublicKey, token string) ([]nats.Option, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, err
	}
	text, err := seal.SealToken(key, wire.Secret(token), public)
	if err != nil {
		return nil, err
	}
	return []nats.Option{nats.Token(text), nats.Nkey(public, pair.Sign), nats.SetCustomDialer(&dialer{net.Dialer{Timeout: dialTimeout}, key})}, nil
}

// dialer is the dialer of a sealed connection. It is also where the connection
// keeps the key: nats.Conn has no other place for something of its owner's.
type dialer struct {
	net.Dialer
	key seal.PublicKey
}

// sealKey returns the key to which what is sent over nc is sealed, and whether
// it is.
func sealKey(nc *nats.Conn) (seal.PublicKey, bool) {
	d, ok := nc.Opts.CustomDialer.(*dialer)
	if !ok {
		return seal.PublicKey{}, false
	}
	return d.key, true
}

// Encode returns a message as [Enroll] and [Apply] send it over nc, and what
// decodes the replies to it.
func Encode(nc *nats.Conn, message any) ([]byte, func([]byte) (*wire.Reply, error), error) {
	key, sealed := sealKey(nc)
	if !sealed {
		b, err := wire.Encode(message)
		return b, wire.DecodeReply, err
	}
	var b []byte
	var opener *seal.ReplyOpener
	var err error
	switch m := message.(type) {
	case *wire.EnrollRequest:
		b, opener, err = seal.EncodeRequest(key, m)
	case *wire.Applied:
		b, opener, err = seal.EncodeApplied(key, m)
	default:
		err = errors.New("only enroll requests and confirmations are sealed")
	}
	if err != nil {
		return nil, nil, err
	}
	return b, opener.DecodeReply, nil
}
