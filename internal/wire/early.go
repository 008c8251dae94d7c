package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// What a broker may say before it has said whether it admits a client, and what answers it.
const earlyPing, earlyPong = "PING\r\n", "PONG\r\n"

// frame is the first byte of a WebSocket frame that is whole and of bytes; the second is how many
// they are or, if they are more than 125, longFrame, and two bytes follow that say it (RFC 6455, section 5.2).
const frame, longFrame = 0x82, 126

// framedPong is the answer in a frame of a client's, which has a mask: zeros are one.
const framedPong = "\x82\x86\x00\x00\x00\x00" + earlyPong

// An Admission is a connection on which package nats.go can wait to be admitted, however long that takes. A nats-server
// sends a client a PING some two seconds after its CONNECT, whether the client is admitted or not, and nats.go ends a
// connection that gets one before the PONG that it waits for. When a whole fleet comes back at once, provisioners take
// longer than that, and each node would be lost after all of its work was done. Such PINGs are answered here, and nats.go
// does not see them.
//
// It is for what nats.go speaks over TLS, not for TLS itself. The first that is written is a CONNECT, or the request for
// a WebSocket. Once a client has been told anything else than a PING, everything is passed on. One goroutine may read
// while another writes, as with any [net.Conn]. Make one with [NewAdmission].
type Admission struct {
	net.Conn
	begun bool          // something has been written
	asked time.Time     // when the CONNECT was, zero if it was not; after that only reads change fields
	told  bool          // no PING is too early any more
	in    *bufio.Reader // nil before there may be a PING, and once all that it has was read
	rest  int           // bytes of a frame that are still to come, of which the head and PINGs were taken
	head  []byte        // of what comes next, in place of one that was taken
}

// NewAdmission returns an Admission over conn, on which nothing was written yet.
func NewAdmission(conn net.Conn) *Admission { return &Admission{Conn: conn} }

// Asked returns how long ago the CONNECT was written, zero if it was not. It must not be
// called while the first two writes are going on.
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
			a.asked = time.Now() // now: a handshake may have come first
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

// answer answers each PING until something else comes.
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

// ping takes the PING that comes next, and returns what answers it; empty if none comes. Of a
// frame it takes the head as well: a broker puts all lines that it has to say into one.
func (a *Admission) ping() (answer string) {
	head, length, framed := 0, a.rest, a.rest > 0
	if !framed {
		head, length, framed = a.begins()
	}
	if length < len(earlyPing) || !a.next(head, earlyPing) {
		return ""
	}
	_, _ = a.in.Discard(head + len(earlyPing)) // all of it is there
	if !framed {
		return earlyPong
	}
	a.rest = length - len(earlyPing)
	return framedPong
}

// begins returns how long the head of the frame is that comes next, and how many bytes follow. What is
// no frame has no head, and may be a PING; the length of a frame that is not looked into is 0.
func (a *Admission) begins() (head, length int, framed bool) {
	b, err := a.in.Peek(1)
	if err != nil || b[0] != frame {
		return 0, len(earlyPing), false
	}
	if b, err = a.in.Peek(2); err != nil { // which comes again when it is read
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

// reframe gives what is left of a frame a head of its own.
func (a *Admission) reframe() {
	switch {
	case a.rest >= longFrame:
		a.head = binary.BigEndian.AppendUint16([]byte{frame, longFrame}, uint16(a.rest))
	case a.rest > 0:
		a.head = []byte{frame, byte(a.rest)}
	}
	a.rest = 0
}

// next reports whether line comes next, after so many bytes. It waits for no byte more than it takes to see
// that it does not: there may be none.
func (a *Admission) next(after int, line string) bool {
	for i := range len(line) {
		if got, err := a.in.Peek(after + i + 1); err != nil || got[after+i] != line[i] {
			return false // an error comes again when it is read
		}
	}
	return true
}
