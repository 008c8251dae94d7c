package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"time"
)

const earlyPing, earlyPong = "PING\r\n", "PONG\r\n"

// frame is the first byte of a whole binary WebSocket frame. The second byte is the length, or longFrame if two
// bytes of length follow (RFC 6455 section 5.2).
const frame, longFrame = 0x82, 126

const maskedPong = "\x82\x86\x00\x00\x00\x00" + earlyPong

// An EarlyPingConn lets nats.go wait longer than two seconds for its admission. After two seconds nats-server sends
// a PING, which makes nats.go give up. EarlyPingConn answers such PINGs and hides them.
//
// With TLS, wrap the TLS connection. The first write must be CONNECT or a WebSocket request. One goroutine may read
// while another writes.
type EarlyPingConn struct {
	net.Conn
	started     bool          // something has been written
	connectSent time.Time     // time of CONNECT or zero; once set, only Read changes fields
	done        bool          // a message other than PING has arrived
	in          *bufio.Reader // nil before CONNECT, and once drained
	frameLeft   int           // bytes left of a frame whose header was consumed
	pending     []byte        // header to return before those bytes
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

// Write implements [net.Conn].
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

// Read implements [net.Conn].
func (a *EarlyPingConn) Read(b []byte) (int, error) {
	if !a.connectSent.IsZero() && !a.done {
		if a.in == nil {
			a.in = bufio.NewReader(a.Conn)
		}
		if err := a.answerPings(); err != nil {
			return 0, err
		}
	}
	if len(a.pending) > 0 {
		n := copy(b, a.pending)
		a.pending = a.pending[n:]
		return n, nil
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
		pong := a.consumePing()
		if pong == "" {
			a.done = true
			a.restoreHeader()
			return nil
		}
		if _, err := io.WriteString(a.Conn, pong); err != nil {
			return err
		}
	}
}

// consumePing removes a PING if it comes next, and returns the answer to it, or "". A broker may put several lines
// into one frame.
func (a *EarlyPingConn) consumePing() (pong string) {
	header, length, framed := 0, a.frameLeft, a.frameLeft > 0
	if !framed {
		header, length, framed = a.frameHeader()
	}
	if length < len(earlyPing) || !a.hasPrefix(header, earlyPing) {
		return ""
	}
	_, _ = a.in.Discard(header + len(earlyPing)) // all of it is buffered
	if !framed {
		return earlyPong
	}
	a.frameLeft = length - len(earlyPing)
	return maskedPong
}

// frameHeader returns the lengths of header and payload. Without WebSocket they are 0 and the length of a PING. A
// frame of another kind has length 0.
func (a *EarlyPingConn) frameHeader() (header, length int, framed bool) {
	b, err := a.in.Peek(1)
	if err != nil || b[0] != frame {
		return 0, len(earlyPing), false
	}
	if b, err = a.in.Peek(2); err != nil { // the error recurs on the next read
		return 0, 0, true
	}
	switch length := int(b[1]); {
	case length < longFrame:
		return 2, length, true
	case length > longFrame:
		return 0, 0, true
	}
	if b, err = a.in.Peek(4); err != nil {
		return 0, 0, true
	}
	return 4, int(binary.BigEndian.Uint16(b[2:])), true
}

func (a *EarlyPingConn) restoreHeader() {
	switch {
	case a.frameLeft >= longFrame:
		a.pending = binary.BigEndian.AppendUint16([]byte{frame, longFrame}, uint16(a.frameLeft))
	case a.frameLeft > 0:
		a.pending = []byte{frame, byte(a.frameLeft)}
	}
	a.frameLeft = 0
}

// hasPrefix waits only for bytes that it needs, because no more may come.
func (a *EarlyPingConn) hasPrefix(after int, line string) bool {
	for i := range len(line) {
		if got, err := a.in.Peek(after + i + 1); err != nil || got[after+i] != line[i] {
			return false // an error recurs on the next read
		}
	}
	return true
}
