package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"time"
)

const earlyPing, earlyPong = "PING\r\n", "PONG\r\n"

// An EarlyPingConn lets nats.go wait longer than two seconds for its admission. After two seconds nats-server sends
// a PING, which makes nats.go give up. EarlyPingConn answers such PINGs and hides them.
//
// With TLS, wrap the TLS connection. The first write must be CONNECT or a WebSocket request; PINGs in WebSocket frames
// stay unanswered. One goroutine may read while another writes.
type EarlyPingConn struct {
	net.Conn
	started     bool          // something has been written
	connectSent time.Time     // time of CONNECT or zero; once set, only Read changes fields
	done        bool          // a message other than PING has arrived
	in          *bufio.Reader // nil before CONNECT, and once drained
}

// NewEarlyPingConn wraps a connection on which nothing was written yet.
func NewEarlyPingConn(conn net.Conn) *EarlyPingConn { return &EarlyPingConn{Conn: conn} }

// SinceConnect is zero before CONNECT. Do not call it during the first two writes.
func (a *EarlyPingConn) SinceConnect() time.Duration {
	if a.connectSent.IsZero() {
		return 0
	}
	return time.Since(a.connectSent)
}

func (a *EarlyPingConn) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	if a.connectSent.IsZero() {
		if a.started || !bytes.HasPrefix(b, []byte("GET ")) {
			a.connectSent = time.Now() // a WebSocket handshake may have come first
		}
		a.started = true
	}
	return n, err
}

func (a *EarlyPingConn) Read(b []byte) (int, error) {
	if !a.connectSent.IsZero() && !a.done {
		if a.in == nil {
			a.in = bufio.NewReader(a.Conn)
		}
		if err := a.answerPings(); err != nil {
			return 0, err
		}
	}
	if a.done && a.in != nil && a.in.Buffered() == 0 {
		a.in = nil
	}
	if a.in == nil {
		return a.Conn.Read(b)
	}
	return a.in.Read(b)
}

func (a *EarlyPingConn) answerPings() error {
	for {
		if _, err := a.in.Peek(1); err != nil {
			return err
		}
		if !a.hasPrefix(earlyPing) {
			a.done = true
			return nil
		}
		_, _ = a.in.Discard(len(earlyPing)) // all of it is buffered
		if _, err := io.WriteString(a.Conn, earlyPong); err != nil {
			return err
		}
	}
}

// hasPrefix waits only for bytes that it needs, because no more may come.
func (a *EarlyPingConn) hasPrefix(line string) bool {
	for i := range len(line) {
		if got, err := a.in.Peek(i + 1); err != nil || got[i] != line[i] {
			return false // an error recurs on the next read
		}
	}
	return true
}
