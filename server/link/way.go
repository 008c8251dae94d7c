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

// A way leads to one broker: it dials for nats.go, which takes no context, and
// makes TLS in its place, so that [wire.Admission] sees what is said over it.
// Until release is called the connection ends with the context.
type way struct {
	ctx context.Context
	net net.Dialer
	tls *tls.Config // nil for none

	mu        sync.Mutex // guards what follows
	err       error
	stop      func() bool
	admission *wire.Admission
}

// Dial implements [nats.CustomDialer].
func (w *way) Dial(_, address string) (net.Conn, error) {
	plain, err := w.net.DialContext(w.ctx, "tcp", address)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err != nil {
		return nil, err
	}
	w.stop = context.AfterFunc(w.ctx, func() { _ = plain.Close() })
	conn := plain
	if w.tls != nil {
		conn = &secured{Conn: plain, config: w.tls, clear: bufio.NewReader(plain)}
	}
	w.admission = wire.NewAdmission(conn)
	return w.admission, nil
}

// SkipTLSHandshake tells nats.go whether to leave TLS to the dialer.
func (w *way) SkipTLSHandshake() bool { return w.tls != nil }

// release lets the connection outlive the context. It reports false if the
// context has ended it.
func (w *way) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stop == nil || w.stop()
}

// withoutTLS returns the URL by which nats.go speaks over a WebSocket whose TLS
// is not its business, and any other as it is.
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

// remedyInClear is about what speaks in clear in place of a handshake. A
// nats-server says so that it is full.
const remedyInClear = "the broker is full, or is just being stopped; or what answers there, or on the way, speaks no TLS"

// errInClear means that a broker goes on in clear where it is to wait for a handshake.
var errInClear = advice.Errorf(remedyInClear, "%w: more in clear than a broker begins with", nats.ErrTLS)

// secured is a connection that is TLS from the first that is written to it: with
// NATS that is after the broker's INFO, with a WebSocket at once. No more than
// one line is read before: what else is put behind it on the way, such as a
// refusal, would pass for the word of a broker that has proven itself.
type secured struct {
	net.Conn
	config *tls.Config   // nil once it is TLS
	clear  *bufio.Reader // of what comes before
}

// Read implements [net.Conn].
func (s *secured) Read(b []byte) (int, error) {
	if s.config == nil {
		return s.Conn.Read(b)
	}
	if _, err := s.clear.Peek(1); err != nil {
		return 0, err
	}
	line, _ := s.clear.Peek(s.clear.Buffered()) // all of it is there
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end+1]
	}
	return s.clear.Read(b[:min(len(b), len(line))])
}

// Write implements [net.Conn].
func (s *secured) Write(b []byte) (int, error) {
	if s.config != nil {
		if s.clear.Buffered() > 0 {
			return 0, errInClear
		}
		conn := tls.Client(s.Conn, s.config)
		if err := conn.Handshake(); err != nil {
			return 0, fmt.Errorf("%w: %w", nats.ErrTLS, err)
		}
		s.Conn, s.config, s.clear = conn, nil, nil
	}
	return s.Conn.Write(b)
}
