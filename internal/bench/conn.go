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
	"sync"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
)

// Time limits of a simulated node, as of the agent (package server): chosen
// there, machines are busy when fleets boot.
const (
	dialTimeout  = 10 * time.Second
	replyTimeout = 15 * time.Second
)

// readBuffer is the size of a connection's reader: a reply with a small
// configuration is about 3 KiB.
const readBuffer = 8 << 10

// maxReply bounds what is read as one message.
const maxReply = 1 << 20

// errNoResponders is the broker's answer where no provisioner listens.
var errNoResponders = errors.New("no provisioner listens")

// credentials are what a connection presents: prepared beforehand, since a
// machine of a fleet has cores of its own for it.
type credentials struct {
	name    string        // of CONNECT, to which the inbox is bound
	token   string        // as presented, perhaps sealed
	session *seal.Session // of a sealed token, else nil
}

// A conn is one connection to the broker, speaking as much of NATS' client
// protocol as a node needs. It sends what nats.go sends for the agent, in the
// same pieces, so that the broker has the same work; it only takes a fraction of
// the CPU on this side: nats.Connect starts three goroutines and has buffers of
// 64 KiB.
//
// It is used by one goroutine at a time.
type conn struct {
	net.Conn
	r     *bufio.Reader
	inbox string // prefix of reply subjects
	slot  uint64 // of the last request, whose reply subject ends in it
	out   []byte // scratch
	in    []byte // scratch
}

// readers are kept from one connection to the next.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

// info is what we need of the broker's greeting.
type info struct {
	Nonce string `json:"nonce"`
}

// dial connects and presents the credentials. secure is nil for no TLS.
func dial(address string, c *credentials, secure *tls.Config) (*conn, error) {
	tcp, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return nil, err
	}
	n := &conn{Conn: tcp, inbox: wire.InboxPrefix(c.name) + "."}
	n.r, _ = readers.Get().(*bufio.Reader)
	n.r.Reset(tcp)
	if err := n.greet(c, secure); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// greet goes through INFO, TLS, CONNECT, PING and PONG.
func (n *conn) greet(c *credentials, secure *tls.Config) error {
	if err := n.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	line, err := n.line()
	if err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	text, ok := bytes.CutPrefix(line, []byte("INFO "))
	if !ok {
		return fmt.Errorf("greeting %.40q, want INFO: no NATS broker", line)
	}
	connect := options{Token: c.token, TLS: secure != nil, Name: c.name, Lang: "go", Version: "bench", Protocol: 1, Echo: true, Headers: true, NoResponders: true}
	if c.session != nil {
		var i info
		if err := json.Unmarshal(text, &i); err != nil {
			return fmt.Errorf("greeting: %w", err)
		}
		signature, err := c.session.Prove([]byte(i.Nonce))
		if err != nil {
			return fmt.Errorf("sign nonce: %w", err)
		}
		connect.Nkey, connect.Signature = c.session.Name(), base64.RawURLEncoding.EncodeToString(signature)
	}
	if secure != nil {
		t := tls.Client(n.Conn, secure)
		if err := t.Handshake(); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		n.Conn = t
		n.r.Reset(t)
	}
	b, err := json.Marshal(connect) //nolint:gosec // the token is what a node presents
	if err != nil {
		return err
	}
	n.out = append(append(append(n.out[:0], "CONNECT "...), b...), "\r\nPING\r\n"...)
	if _, err := n.Write(n.out); err != nil {
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

// options are the members of CONNECT that nats.go sends.
type options struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Nkey         string `json:"nkey,omitempty"`
	Signature    string `json:"sig,omitempty"`
	Token        string `json:"auth_token,omitempty"`
	TLS          bool   `json:"tls_required"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Echo         bool   `json:"echo"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
}

// ask publishes a request and returns the reply, which is good until the next
// call.
func (n *conn) ask(subject string, payload []byte) ([]byte, error) {
	if err := n.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	n.out = n.out[:0]
	if n.slot > 0 {
		n.out = strconv.AppendUint(append(n.out, "UNSUB "...), n.slot, 10)
		n.out = append(n.out, "\r\n"...)
	}
	// As the agent does: a subject of its own for each reply. A wildcard would
	// cost the broker more.
	n.slot++
	n.out = strconv.AppendUint(append(append(n.out, "SUB "...), n.inbox...), n.slot, 10)
	n.out = strconv.AppendUint(append(n.out, ' '), n.slot, 10)
	n.out = append(n.out, "\r\n"...)
	n.publish(subject, n.slot, payload)
	if _, err := n.Write(n.out); err != nil {
		return nil, err
	}
	for {
		m, err := n.message()
		if err != nil {
			return nil, err
		}
		if m.payload != nil && m.slot == n.slot {
			return m.payload, m.err
		}
	}
}

// subscribe adds a subscription to all replies to what is to be sent, where
// many are waited for at once.
func (n *conn) subscribe() {
	n.out = append(append(append(n.out, "SUB "...), n.inbox...), "* 1\r\n"...)
}

// publish adds a request to what is to be sent; slot tells its reply from
// others.
func (n *conn) publish(subject string, slot uint64, payload []byte) {
	n.out = append(append(append(n.out, "PUB "...), subject...), ' ')
	n.out = strconv.AppendUint(append(n.out, n.inbox...), slot, 10)
	n.out = strconv.AppendInt(append(n.out, ' '), int64(len(payload)), 10)
	n.out = append(append(append(n.out, "\r\n"...), payload...), "\r\n"...)
}

// message is what came in: a reply, or a request to us, if payload is not nil.
type message struct {
	slot    uint64
	replyTo string // of a request to us; empty in a reply
	payload []byte
	err     error // what the broker says in place of a reply
}

// message reads the next thing that the broker sends, and answers its pings.
func (n *conn) message() (message, error) {
	line, err := n.line()
	if err != nil {
		return message{}, err
	}
	word, rest, _ := bytes.Cut(line, []byte(" "))
	switch string(word) {
	case "MSG", "HMSG":
		return n.reply(string(word) == "HMSG", strings.Fields(string(rest)))
	case "PING":
		_, err := n.Write([]byte("PONG\r\n"))
		return message{}, err
	case "-ERR":
		return message{}, brokerError(line)
	default: // +OK, PONG, INFO
		return message{}, nil
	}
}

// reply reads the rest of a message: MSG subject sid [reply-to] size, or HMSG
// subject sid [reply-to] headers size.
func (n *conn) reply(headers bool, fields []string) (message, error) {
	if len(fields) < 3 || headers && len(fields) < 4 {
		return message{}, fmt.Errorf("broker sent a message of %d fields", len(fields))
	}
	size, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || size < 0 || size > maxReply {
		return message{}, fmt.Errorf("broker sent a message of %.20q bytes", fields[len(fields)-1])
	}
	n.in = slices.Grow(n.in[:0], size+2)[:size+2]
	if _, err := io.ReadFull(n.r, n.in); err != nil {
		return message{}, err
	}
	text, ours := strings.CutPrefix(fields[0], n.inbox)
	if !ours {
		return n.request(headers, fields)
	}
	slot, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return message{}, fmt.Errorf("broker sent a message on %.80q", fields[0])
	}
	m := message{slot: slot, payload: n.in[:size]}
	if headers {
		m.err = errNoResponders // nobody else sends us headers
	}
	return m, nil
}

// request makes sense of a message that is no reply and has been read. What has no
// reply subject is none to us: see package server.
func (n *conn) request(headers bool, fields []string) (message, error) {
	text, rest := n.in[:len(n.in)-2], fields[2:]
	if headers {
		size, err := strconv.Atoi(rest[len(rest)-2])
		if err != nil || size < 0 || size > len(text) {
			return message{}, fmt.Errorf("broker sent headers of %.20q bytes", rest[len(rest)-2])
		}
		text, rest = text[size:], rest[1:]
	}
	if len(rest) < 2 {
		return message{}, nil
	}
	return message{replyTo: fields[2], payload: text}, nil
}

// respond answers a request to us.
func (n *conn) respond(to string, payload []byte) error {
	n.out = append(append(append(n.out[:0], "PUB "...), to...), ' ')
	n.out = strconv.AppendInt(n.out, int64(len(payload)), 10)
	n.out = append(append(append(n.out, "\r\n"...), payload...), "\r\n"...)
	_, err := n.Write(n.out)
	return err
}

// line reads one line without its end. It is good until the next read.
func (n *conn) line() ([]byte, error) {
	line, err := n.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("broker sent a line of more than %d bytes", readBuffer)
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// close ends the connection.
func (n *conn) close() {
	_ = n.Close() // nothing that we sent is outstanding
	n.r.Reset(nil)
	readers.Put(n.r)
	n.r = nil
}

// brokerError is what a broker says before it closes a connection.
func brokerError(line []byte) error {
	return fmt.Errorf("broker: %s", strings.Trim(strings.TrimPrefix(string(line), "-ERR"), " '"))
}
