package broker_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// raw speaks the NATS protocol by hand.
type raw struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
	name string
	info struct {
		Nonce      string `json:"nonce"`
		MaxPayload int    `json:"max_payload"`
	}
}

// dial connects over TCP, with TLS if config is not nil, and reads INFO.
func (s *site) dial(t *testing.T, config *tls.Config) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	c := begin(t, conn)
	if config != nil {
		c.conn = tls.Client(conn, config)
		c.r = bufio.NewReader(c.conn)
	}
	return c
}

// dialWeb connects by WebSocket without TLS and reads INFO.
func (s *site) dialWeb(t *testing.T) *raw {
	t.Helper()
	address := strings.TrimPrefix(s.WebSocketURL(), "ws://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	request := "GET / HTTP/1.1\r\nHost: " + address + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	w := &framed{Conn: conn, r: bufio.NewReader(conn)}
	response, err := http.ReadResponse(w.r, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("response = %v, %v", response, err)
	}
	return begin(t, w)
}

type framed struct {
	net.Conn
	r    *bufio.Reader
	left uint64 // of the frame that is read
}

// Read implements [net.Conn].
func (f *framed) Read(b []byte) (int, error) {
	for f.left == 0 {
		head := make([]byte, 2)
		if _, err := io.ReadFull(f.r, head); err != nil {
			return 0, err
		}
		long := map[byte]int{126: 2, 127: 8}[head[1]]
		length := make([]byte, 8)
		if _, err := io.ReadFull(f.r, length[8-long:]); err != nil {
			return 0, err
		}
		if f.left = uint64(head[1]); long > 0 {
			f.left = binary.BigEndian.Uint64(length)
		}
	}
	n, err := f.r.Read(b[:min(uint64(len(b)), f.left)])
	f.left -= uint64(n)
	return n, err
}

// Write implements [net.Conn] with a mask of zeros.
func (f *framed) Write(b []byte) (int, error) {
	head := binary.BigEndian.AppendUint64([]byte{0x82, 0x80 | 127}, uint64(len(b)))
	if _, err := f.Conn.Write(append(append(head, 0, 0, 0, 0), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func begin(t *testing.T, conn net.Conn) *raw {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c := &raw{t: t, conn: conn, r: bufio.NewReader(conn), name: wire.NewID()}
	line, err := c.r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &c.info); err != nil {
		t.Fatal(err)
	}
	return c
}

// hello sends CONNECT with these members and returns the lines up to PONG or the end.
func (c *raw) hello(members map[string]any) []string {
	c.t.Helper()
	all := map[string]any{"verbose": false, "name": c.name, "protocol": 1, "headers": true, "echo": true}
	for k, v := range members {
		all[k] = v
	}
	b, err := json.Marshal(all)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.say("CONNECT " + string(b))
}

// say sends lines and a PING, and returns the lines up to PONG, or to "EOF".
func (c *raw) say(lines ...string) []string {
	c.t.Helper()
	text := strings.Join(append(lines, "PING"), "\r\n") + "\r\n"
	if _, err := io.WriteString(c.conn, text); err != nil {
		return []string{"EOF"}
	}
	var got []string
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return append(got, "EOF")
		}
		switch line = strings.TrimSpace(line); {
		case line == "PONG":
			return got
		case strings.HasPrefix(line, "INFO"):
		case line == "PING": // which a server says after a second or two
			_, _ = io.WriteString(c.conn, "PONG\r\n") // what is read next says whether the connection has ended
		default:
			got = append(got, line)
		}
	}
}

// last returns the last line before the server closes the connection.
func (c *raw) last() string {
	c.t.Helper()
	last := ""
	for {
		line, err := c.r.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatalf("the connection is still open after %v", patience)
		}
		if err != nil {
			return last
		}
		if line = strings.TrimSpace(line); line != "PING" {
			last = line
		}
	}
}

func (c *raw) mustHello(members map[string]any) *raw {
	c.t.Helper()
	if got := c.hello(members); len(got) > 0 {
		c.t.Fatalf("CONNECT answered %q, want it accepted", got)
	}
	return c
}

func subscribe(subject string) string { return fmt.Sprintf("SUB %s 1", subject) }

func publish(subject string) string { return fmt.Sprintf("PUB %s 2\r\n{}", subject) }

// refusal reports whether got is only the refusal of one subject.
func refusal(got []string) bool {
	return len(got) == 1 && strings.HasPrefix(got[0], "-ERR 'Permissions Violation")
}
