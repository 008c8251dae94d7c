package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
)

// The agent's time limits (package server).
const (
	dialTimeout  = 10 * time.Second
	replyTimeout = 15 * time.Second
)

const (
	readBuffer = 8 << 10 // a reply with a small configuration has about 3 KiB
	maxReply   = 1 << 20
)

var errNoResponders = errors.New("no provisioner listens")

// credentials authenticate a connection; they are made before the clock starts.
type credentials struct {
	name    string // in CONNECT; it determines the inbox
	token   string // perhaps sealed
	session *seal.Session
}

// A conn is a connection to the broker with the part of the NATS protocol that a node needs. It sends the same messages
// as the agent with nats.go, so the broker has the same work, for a fraction of the CPU: nats.Connect starts three
// goroutines. It is not safe for concurrent use.
type conn struct {
	net.Conn
	r     *bufio.Reader
	inbox string
	slot  uint64 // number of the last request, of its subscription, and at the end of its reply subject
	out   []byte
	in    []byte
}

// dial connects and presents the credentials; nil secure: no TLS.
func dial(address string, c credentials, secure *tls.Config) (*conn, error) {
	tcp, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return nil, err
	}
	n := &conn{Conn: tcp, r: bufio.NewReaderSize(tcp, readBuffer), inbox: wire.InboxPrefix(c.name) + "."}
	if err := n.greet(c, secure); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// connect returns CONNECT with the members that nats.go sends. %q is valid JSON here: all texts are base64url and dots.
func (c credentials) connect(info []byte, secure bool) ([]byte, error) {
	proof := ""
	if c.session != nil {
		var greeting struct {
			Nonce string `json:"nonce"`
		}
		if err := json.Unmarshal(info, &greeting); err != nil {
			return nil, fmt.Errorf("greeting: %w", err)
		}
		signature, err := c.session.Prove([]byte(greeting.Nonce))
		if err != nil {
			return nil, err
		}
		proof = fmt.Sprintf(`,"nkey":%q,"sig":%q`, c.session.Name(), base64.RawURLEncoding.EncodeToString(signature))
	}
	return fmt.Appendf(nil,
		`CONNECT {"verbose":false,"pedantic":false,"auth_token":%q,"tls_required":%t,"name":%q,"lang":"go",`+
			`"version":"bench","protocol":1,"echo":true,"headers":true,"no_responders":true%s}`+"\r\nPING\r\n",
		c.token, secure, c.name, proof), nil
}

func (n *conn) greet(c credentials, secure *tls.Config) error {
	if err := n.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	line, err := n.line()
	if err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	info, ok := bytes.CutPrefix(line, []byte("INFO "))
	if !ok {
		return fmt.Errorf("greeting %.40q, want INFO: the peer is not a NATS broker", line)
	}
	connect, err := c.connect(info, secure != nil)
	if err != nil {
		return err
	}
	if secure != nil {
		t := tls.Client(n.Conn, secure)
		if err := t.Handshake(); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		n.Conn = t
		n.r.Reset(t)
	}
	if _, err := n.Write(connect); err != nil {
		return err
	}
	for {
		switch line, err := n.line(); {
		case err != nil:
			return fmt.Errorf("connect: %w", err)
		case bytes.HasPrefix(line, []byte("PONG")):
			return n.SetDeadline(time.Time{})
		case bytes.HasPrefix(line, []byte("-ERR")):
			return brokerError(line)
		}
	}
}

// ask publishes a request and returns the reply. Like the agent, it subscribes to one subject for each reply, since
// wildcards cost the broker more.
func (n *conn) ask(subject string, payload []byte) ([]byte, error) {
	if err := n.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	if n.slot > 0 {
		n.out = fmt.Appendf(n.out, "UNSUB %d\r\n", n.slot)
	}
	n.slot++
	reply := n.inbox + strconv.FormatUint(n.slot, 10)
	n.subscribe(reply, n.slot)
	n.publish(subject, reply, payload)
	if err := n.flush(); err != nil {
		return nil, err
	}
	for {
		m, err := n.message()
		if err != nil || m.slot == n.slot {
			return bytes.Clone(m.payload), errors.Join(err, m.err)
		}
	}
}

// subscribe, publish and flush: the first two take effect when the third writes them.
func (n *conn) subscribe(subject string, slot uint64) {
	n.out = fmt.Appendf(n.out, "SUB %s %d\r\n", subject, slot)
}

func (n *conn) publish(subject, reply string, payload []byte) {
	n.out = fmt.Appendf(n.out, "PUB %s %s %d\r\n", subject, reply, len(payload))
	n.out = append(append(n.out, payload...), "\r\n"...)
}

func (n *conn) flush() error {
	_, err := n.Write(n.out)
	n.out = n.out[:0]
	return err
}

// A message came for the subscription slot; 0 for all else. Its payload is valid until the next message.
type message struct {
	slot    uint64
	payload []byte
	err     error // error reported by the broker
}

func (n *conn) message() (m message, err error) {
	line, err := n.line()
	if err != nil {
		return m, err
	}
	switch word, rest, _ := strings.Cut(string(line), " "); word {
	case "MSG", "HMSG":
		return n.received(strings.Fields(rest), word == "HMSG")
	case "PING":
		_, err = n.Write([]byte("PONG\r\n"))
	case "-ERR":
		err = brokerError(line)
	}
	return m, err
}

// received reads what follows the line of a message: subject, subscription, perhaps a reply subject, the size of the
// headers if there are any, and the whole size.
func (n *conn) received(fields []string, headers bool) (m message, err error) {
	if len(fields) < 3 {
		return m, fmt.Errorf("broker sent a message of %d fields", len(fields))
	}
	size, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || size < 0 || size > maxReply {
		return m, fmt.Errorf("broker sent a message of %.20q bytes", fields[len(fields)-1])
	}
	n.in = slices.Grow(n.in[:0], size+2)[:size+2]
	if _, err := io.ReadFull(n.r, n.in); err != nil {
		return m, err
	}
	if m.slot, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return m, fmt.Errorf("broker sent a message for subscription %.20q", fields[1])
	}
	m.payload = n.in[:size]
	if headers {
		header, err := strconv.Atoi(fields[len(fields)-2])
		if err != nil || header >= size { // only the status
			m.err, header = errNoResponders, size
		}
		m.payload = m.payload[max(0, header):]
	}
	return m, nil
}

// line reads one line of up to readBuffer bytes, valid until the next read.
func (n *conn) line() ([]byte, error) {
	line, err := n.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

func (n *conn) close() { _ = n.Close() }

func brokerError(line []byte) error {
	return fmt.Errorf("broker: %s", strings.Trim(strings.TrimPrefix(string(line), "-ERR"), " '"))
}
