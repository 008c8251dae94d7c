package bench

import (
	"errors"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

var errTimeout = errors.New("no reply in 15s")

// A link is a connection over which a node sends requests.
type link interface {
	ask(subject string, payload []byte) ([]byte, error)
	close()
}

// A sharedLink is a connection for many requests at a time.
type sharedLink struct {
	credentials
	*nats.Conn
}

// reconnects is a [nats.Option] for connections that last for the whole measurement.
func reconnects(o *nats.Options) error {
	o.AllowReconnect, o.MaxReconnect, o.ReconnectWait = true, -1, firstBackoff
	return nil
}

// dialShared connects for many nodes.
func (f *fleet) dialShared() (l sharedLink, err error) {
	c, err := f.newCredentials()
	if err != nil {
		return l, err
	}
	options := []nats.Option{
		nats.Name(c.name),
		nats.CustomInboxPrefix(wire.InboxPrefix(c.name)),
		nats.Token(c.token),
		reconnects,
		nats.Timeout(dialTimeout),
	}
	if c.session != nil {
		options = append(options, nats.Nkey(c.session.Name(), c.session.Prove))
	}
	if f.secure != nil {
		options = append(options, nats.Secure(f.secure))
	}
	nc, err := nats.Connect("nats://"+f.address, options...)
	return sharedLink{c, nc}, err
}

func (l sharedLink) ask(subject string, payload []byte) ([]byte, error) {
	m, err := l.Request(subject, payload, replyTimeout)
	if errors.Is(err, nats.ErrTimeout) {
		return nil, errTimeout
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (l sharedLink) close() { l.Close() }
