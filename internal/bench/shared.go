package bench

import (
	"crypto/tls"
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

// A sharedLink is a connection for many nodes, made with nats.go. It connects again after a disconnect.
type sharedLink struct {
	*credentials
	url    string
	secure *tls.Config

	mu sync.Mutex
	nc *nats.Conn // guarded by mu; nil: none
}

func (l *sharedLink) conn() (*nats.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nc != nil && !l.nc.IsClosed() {
		return l.nc, nil
	}
	options := []nats.Option{
		nats.Name(l.name),
		nats.CustomInboxPrefix(wire.InboxPrefix(l.name)),
		nats.Token(l.token),
		nats.NoReconnect(),
		nats.Timeout(dialTimeout),
	}
	if l.session != nil {
		options = append(options, nats.Nkey(l.session.Name(), l.session.Prove))
	}
	if l.secure != nil {
		options = append(options, nats.Secure(l.secure))
	}
	var err error
	l.nc, err = nats.Connect(l.url, options...)
	return l.nc, err
}

func (l *sharedLink) ask(subject string, payload []byte) ([]byte, error) {
	nc, err := l.conn()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
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
