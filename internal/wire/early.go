package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
)

// What a broker may say before it has said whether it admits a client, and what answers it.
const earlyPing, earlyPong = "PING\r\n", "PONG\r\n"

// frame is the first byte of a WebSocket frame that is whole and of bytes; the second is how many
// they are or, if they are more than 125, longFrame, and two bytes follow that say it (RFC 6455, section 5.2).
const frame, longFrame = 0x82, 126

// framedPong is the answer in a frame of a client's, which has a mask: zeros are one.
const framedPong = "\x82\x86\x00\x00\x00\x00" + earlyPong

// Admission returns conn as package nats.go can wait on it to be admitted, however long that
// takes. A nats-server sends a client a PING some two seconds after it has read its CONNECT,
// be the client admitted or not, and nats.go ends a connection that gets one before the PONG that
// it waits for. Where provisioners take longer than that, as over a fleet that comes back
// at once, each node would be lost after all of its work was done, and come again. Such
// PINGs are answered here, and nats.go does not see them.
//
// It is for what nats.go speaks over TLS, not for TLS itself. The first that is written
// is a CONNECT, or the request for a WebSocket. Once a client has been told anything else
// than a PING, everything is passed on as it is. One may read while another writes, as with
// any [net.Conn].
func Admission(conn net.Conn) net.Conn { return &admission{Conn: conn} }

type admission struct {
	net.Conn
	begun bool // something has been written
	asked bool // so has the CONNECT; no field changes after that but by who reads
	told  bool // no PING is too early any more
	in    *bufio.Reader
}

// Write implements [net.Conn].
func (a *admission) Write(b []byte) (int, error) {
	if !a.asked {
		a.asked = a.begun || !bytes.HasPrefix(b, []byte("GET "))
		a.begun = true
	}
	return a.Conn.Write(b)
}

// Read implements [net.Conn].
func (a *admission) Read(b []byte) (int, error) {
	if a.asked && !a.told {
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
func (a *admission) answer() error {
	for {
		first, err := a.in.Peek(1)
		if err != nil {
			return err
		}
		answer := ""
		switch {
		case first[0] != frame && a.next("", earlyPing):
			answer = earlyPong
			_, _ = a.in.Discard(len(earlyPing)) // all of it is there
		case first[0] == frame && a.unframe():
			answer = framedPong
		default:
			a.told = true
			return nil
		}
		if _, err := io.WriteString(a.Conn, answer); err != nil {
			return err
		}
	}
}

// unframe takes a PING out of the frame that comes next, if that begins with one. A broker puts all
// lines that it has to say into one.
func (a *admission) unframe() bool {
	head, err := a.in.Peek(2)
	if err != nil {
		return false
	}
	length := int(head[1])
	if length == longFrame {
		if head, err = a.in.Peek(4); err != nil {
			return false
		}
		length = int(binary.BigEndian.Uint16(head[2:]))
	}
	rest := length - len(earlyPing)
	if head[1] > longFrame || rest < 0 || !a.next(string(head), earlyPing) {
		return false
	}
	_, _ = a.in.Discard(len(head) + len(earlyPing)) // all of it is there
	switch {
	case rest >= longFrame:
		a.prepend(binary.BigEndian.AppendUint16([]byte{frame, longFrame}, uint16(rest)))
	case rest > 0:
		a.prepend([]byte{frame, byte(rest)})
	}
	return true
}

// prepend has head be what comes next.
func (a *admission) prepend(head []byte) {
	a.in = bufio.NewReader(io.MultiReader(bytes.NewReader(head), a.in))
}

// next reports whether line comes next, after head. It waits for no byte more than it takes to see
// that it does not: there may be none.
func (a *admission) next(head, line string) bool {
	for i := len(head); i < len(head)+len(line); i++ {
		if got, err := a.in.Peek(i + 1); err != nil || got[i] != line[i-len(head)] {
			return false // an error comes again when it is read
		}
	}
	return true
}
