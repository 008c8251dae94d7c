package link

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server/advice"
)

// A brokerDialer dials one broker for nats.go, whose dialers get no context. It also does TLS, so that
// [wire.EarlyPingConn] sees unencrypted protocol. Until release is called, the connection ends with ctx.
type brokerDialer struct {
	ctx context.Context
	net net.Dialer
	tls *tls.Config // nil: no TLS

	mu        sync.Mutex // guards the fields below
	err       error
	stop      func() bool
	admission *wire.EarlyPingConn
}

// Dial implements [nats.CustomDialer].
func (w *brokerDialer) Dial(_, address string) (net.Conn, error) {
	plain, err := w.net.DialContext(w.ctx, "tcp", address)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err != nil {
		return nil, err
	}
	w.stop = context.AfterFunc(w.ctx, func() { _ = plain.Close() })
	conn := plain
	if w.tls != nil {
		conn = &lateTLS{Conn: plain, config: w.tls, plain: bufio.NewReader(plain)}
	}
	w.admission = wire.NewEarlyPingConn(conn)
	return w.admission, nil
}

// SkipTLSHandshake makes nats.go leave TLS to the dialer.
func (w *brokerDialer) SkipTLSHandshake() bool { return w.tls != nil }

func (w *brokerDialer) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stop == nil || w.stop()
}

// withoutTLS changes wss: to ws:, since the dialer does TLS for nats.go.
func withoutTLS(url string) string {
	if rest, ok := strings.CutPrefix(url, "wss:"); ok {
		return "ws:" + rest
	}
	return url
}

// HasTLS reports whether a URL asks for TLS.
func HasTLS(url string) bool {
	return strings.HasPrefix(url, "tls:") || strings.HasPrefix(url, "wss:")
}

// A nats-server at its connection limit says so without TLS.
const remedyUnencrypted = "the broker may be full or stopping; or the peer, or a proxy in between, does not speak TLS"

// errUnencrypted means that a broker sent unencrypted data when the handshake was due.
var errUnencrypted = advice.Errorf(remedyUnencrypted, "%w: unencrypted data after the broker's first line", nats.ErrTLS)

// lateTLS starts TLS at the first write: with NATS after the broker's INFO, with a WebSocket at once. Before, it reads
// at most one line. Anything injected after that line, such as a refusal, would seem to come from an authenticated
// broker.
type lateTLS struct {
	net.Conn
	config *tls.Config // nil after the handshake
	plain  *bufio.Reader
}

func (s *lateTLS) Read(b []byte) (int, error) {
	if s.config == nil {
		return s.Conn.Read(b)
	}
	if _, err := s.plain.Peek(1); err != nil {
		return 0, err
	}
	line, _ := s.plain.Peek(s.plain.Buffered()) // never blocks
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end+1]
	}
	return s.plain.Read(b[:min(len(b), len(line))])
}

func (s *lateTLS) Write(b []byte) (int, error) {
	if s.config != nil {
		if s.plain.Buffered() > 0 {
			return 0, errUnencrypted
		}
		conn := tls.Client(s.Conn, s.config)
		if err := conn.Handshake(); err != nil {
			return 0, fmt.Errorf("%w: %w", nats.ErrTLS, err)
		}
		s.Conn, s.config, s.plain = conn, nil, nil
	}
	return s.Conn.Write(b)
}
