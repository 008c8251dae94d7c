package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"time"
)

// What a broker may say before it has said whether it admits a client, and what answers it.
const earlyPing, earlyPong = "PING\r\n", "PONG\r\n"

// An Admission is a connection on which package nats.go can wait to be admitted, however long that takes. A nats-server
// sends a client a PING some two seconds after its CONNECT, whether the client is admitted or not, and nats.go ends a
// connection that gets one before the PONG that it waits for. When a whole fleet comes back at once, provisioners take
// longer than that, and each node would be lost after all of its work was done. Such PINGs are answered here, and nats.go
// does not see them. A WebSocket is passed on as it is: there the node connects again.
//
// It is for what nats.go speaks over TLS, not for TLS itself. The first that is written is a CONNECT, or the request for
// a WebSocket. Once a client has been told anything else than a PING, everything is passed on. One goroutine may read
// while another writes, as with any [net.Conn]. Make one with [NewAdmission].
type Admission struct {
	net.Conn
	begun bool          // something has been written
	asked time.Time     // when the CONNECT was, zero if it was not
	told  bool          // no PING is too early any more
	in    *bufio.Reader // nil before there may be a PING, and once all that it has was read
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
		if !a.begun {
			a.told = bytes.HasPrefix(b, []byte("GET "))
		}
		if a.begun || !a.told {
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
		if !a.next(earlyPing) {
			a.told = true
			return nil
		}
		_, _ = a.in.Discard(len(earlyPing)) // all of it is there
		if _, err := io.WriteString(a.Conn, earlyPong); err != nil {
			return err
		}
	}
}

// next reports whether line comes next. It waits for no byte more than it takes to see that it does not: there may be
// none.
func (a *Admission) next(line string) bool {
	for i := range len(line) {
		if got, err := a.in.Peek(i + 1); err != nil || got[i] != line[i] {
			return false // an error comes again when it is read
		}
	}
	return true
}
