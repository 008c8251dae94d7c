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

// frame begins an unfragmented binary WebSocket frame. The second byte is its length, or longFrame and two more
// bytes hold it (RFC 6455 section 5.2).
const frame, longFrame = 0x82, 126

// framedPong is a client's frame, with a mask of zeros.
const framedPong = "\x82\x86\x00\x00\x00\x00" + earlyPong

// An EarlyPingConn lets nats.go wait longer than two seconds for its admission. nats-server then sends a PING
// before it admits the client, and nats.go gives up. EarlyPingConn answers such PINGs and hides them.
//
// It goes inside TLS. The first write must be CONNECT or a WebSocket request. After the first message that is no
// PING it only passes data on. One goroutine may read while another writes.
type Admission struct {
	net.Conn
	begun bool          // something has been written
	asked time.Time     // time of CONNECT or zero; later only reads change fields
	told  bool          // a message other than PING has arrived
	in    *bufio.Reader // nil before CONNECT, and once drained
	rest  int           // bytes left of a frame whose header was consumed
	head  []byte        // header to return before those bytes
}

// NewEarlyPingConn wraps a connection on which nothing was written yet.
func NewAdmission(conn net.Conn) *Admission { return &Admission{Conn: conn} }

// SinceConnect returns the time since CONNECT, zero before it. Do not call it during the first two writes.
func (a *Admission) Asked() time.Duration {
	if a.asked.IsZero() {
		return 0
	}
	return time.Since(a.asked)
}

// Write implements [net.Conn].
func (a *Admission) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	if a.asked.IsZero() {
		if a.begun || !bytes.HasPrefix(b, []byte("GET ")) {
			a.asked = time.Now() // a handshake may have come first
		}
		a.begun = true
	}
	return n, err
}

// Read implements [net.Conn].
func (a *Admission) Read(b []byte) (int, error) {
	if !a.asked.IsZero() && !a.told {
		if a.in == nil {
			a.in = bufio.NewReader(a.Conn)
		}
		if err := a.answer(); err != nil {
			return 0, err
		}
	}
	if len(a.head) > 0 {
		n := copy(b, a.head)
		a.head = a.head[n:]
		return n, nil
	}
	if a.told && a.in != nil && a.in.Buffered() == 0 {
		a.in = nil
	}
	if a.in == nil {
		return a.Conn.Read(b)
	}
	return a.in.Read(b)
}

// answerPings answers PINGs until something else arrives.
func (a *Admission) answer() error {
	for {
		if _, err := a.in.Peek(1); err != nil {
			return err
		}
		answer := a.ping()
		if answer == "" {
			a.told = true
			a.reframe()
			return nil
		}
		if _, err := io.WriteString(a.Conn, answer); err != nil {
			return err
		}
	}
}

// consumePing consumes the next PING and returns its answer, or "". It consumes the frame's header too: a broker
// may put several lines into one frame.
func (a *Admission) ping() (answer string) {
	head, length, framed := 0, a.rest, a.rest > 0
	if !framed {
		head, length, framed = a.begins()
	}
	if length < len(earlyPing) || !a.next(head, earlyPing) {
		return ""
	}
	_, _ = a.in.Discard(head + len(earlyPing)) // all of it is buffered
	if !framed {
		return earlyPong
	}
	a.rest = length - len(earlyPing)
	return framedPong
}

// frameHeader returns the lengths of the next frame's header and payload. Without a frame the header is 0 long; a
// frame of another kind has length 0.
func (a *Admission) begins() (head, length int, framed bool) {
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

// reframe makes a header for the rest of a frame.
func (a *Admission) reframe() {
	switch {
	case a.rest >= longFrame:
		a.head = binary.BigEndian.AppendUint16([]byte{frame, longFrame}, uint16(a.rest))
	case a.rest > 0:
		a.head = []byte{frame, byte(a.rest)}
	}
	a.rest = 0
}

// hasPrefix reports whether line comes next, after some bytes. It never waits for more bytes than it needs, since
// none may come.
func (a *Admission) next(after int, line string) bool {
	for i := range len(line) {
		if got, err := a.in.Peek(after + i + 1); err != nil || got[after+i] != line[i] {
			return false // an error recurs on the next read
		}
	}
	return true
}
