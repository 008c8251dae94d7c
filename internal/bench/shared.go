package bench

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

var errTimeout = errors.New("no reply in 15s")

// A link is a connection over which a node sends requests.
type link interface {
	ask(subject string, payload []byte) ([]byte, error)
	close()
}

// A sharedLink is a connection made with nats.go, for many requests at a time. It connects again after a disconnect.
type sharedLink struct {
	credentials
	dial func() (*nats.Conn, error)

	mu sync.Mutex
	nc *nats.Conn // guarded by mu; nil: none
}

func (l *sharedLink) conn() (*nats.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nc != nil && !l.nc.IsClosed() {
		return l.nc, nil
	}
	var err error
	if l.nc, err = l.dial(); err != nil {
		err = fmt.Errorf("connect: %w", err)
	}
	return l.nc, err
}

// dialShared connects for many nodes.
func (f *fleet) dialShared(c credentials) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(c.name),
		nats.CustomInboxPrefix(wire.InboxPrefix(c.name)),
		nats.Token(c.token),
		nats.NoReconnect(),
		nats.Timeout(dialTimeout),
	}
	if c.session != nil {
		options = append(options, nats.Nkey(c.session.Name(), c.session.Prove))
	}
	if f.secure != nil {
		options = append(options, nats.Secure(f.secure))
	}
	return nats.Connect("nats://"+f.address, options...)
}

func (l *sharedLink) ask(subject string, payload []byte) ([]byte, error) {
	nc, err := l.conn()
	if err != nil {
		return nil, err
	}
	m, err := nc.Request(subject, payload, replyTimeout)
	if errors.Is(err, nats.ErrTimeout) {
		return nil, errTimeout
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

func (l *sharedLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nc != nil {
		l.nc.Close()
	}
}
