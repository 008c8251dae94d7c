package broker_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// machine is a connection of one without a certificate.
type machine struct {
	conn net.Conn
	r    *bufio.Reader
}

// come connects with a token from an address, and returns what the server says against it.
func come(t *testing.T, url, token, from string) (*machine, string) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	conn, err := d.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		return nil, err.Error()
	}
	m := &machine{conn, bufio.NewReader(conn)}
	t.Cleanup(func() { _ = conn.Close() }) // nobody else would hold it until then
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	hello, _ := json.Marshal(map[string]any{"auth_token": token, "name": wire.NewID(), "protocol": 1})
	_, _ = fmt.Fprintf(conn, "CONNECT %s\r\nPING\r\n", hello)
	if said := m.said(); said != "" {
		_ = conn.Close()
		return nil, said
	}
	return m, ""
}

// said reads until the server has answered a PING, and returns what it has said before, or that it has gone.
func (m *machine) said() string {
	for {
		line, err := m.r.ReadString('\n')
		switch line = strings.TrimSpace(line); {
		case err != nil:
			return err.Error()
		case line == "PONG":
			return ""
		case strings.HasPrefix(line, "-ERR"):
			return line
		}
	}
}

// stays reports whether the connection is there.
func (m *machine) stays() bool {
	_, err := fmt.Fprint(m.conn, "PING\r\n")
	return err == nil && m.said() == ""
}
