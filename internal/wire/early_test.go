package wire_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// Brokers send lines before they admit a client, whole and byte by byte. nats.go would close the connection at a
// PING before the PONG.
func TestEarlyPingIsAnswered(t *testing.T) {
	t.Parallel()
	const (
		connect = "CONNECT {}\r\n"
		upgrade = "GET / HTTP/1.1\r\n\r\n"
		frame   = "\x82\x06"                 // of six bytes, from a broker
		masked  = "\x82\x8c\x00\x00\x00\x00" // of twelve, from a client
	)
	type exchange struct{ ask, told, read, answered string }
	for name, exchanges := range map[string][]exchange{
		"admitted at once":                  {{connect, "PONG\r\n", "PONG\r\n", ""}},
		"refused at once":                   {{connect, "-ERR 'x'\r\n", "-ERR 'x'\r\n", ""}},
		"pinged, then admitted":             {{connect, "PING\r\nPONG\r\n", "PONG\r\n", "PONG\r\n"}},
		"pinged twice, then refused":        {{connect, "PING\r\nPING\r\n-ERR 'x'\r\n", "-ERR 'x'\r\n", "PONG\r\nPONG\r\n"}},
		"something that begins like a PING": {{connect, "PINE\r\nPING\r\n", "PINE\r\nPING\r\n", ""}},
		"pinged once it is admitted": {
			{connect, "PING\r\nPONG\r\nPING\r\n", "PONG\r\nPING\r\n", "PONG\r\n"},
			{"PONG\r\n", "PING\r\n", "PING\r\n", ""},
		},
		"a broker that speaks first": {{"", "PING\r\n", "PING\r\n", ""}, {connect, "PING\r\nPONG\r\n", "PONG\r\n", "PONG\r\n"}},
		"a WebSocket": {
			{upgrade, "HTTP/1.1 101 x\r\n\r\n", "HTTP/1.1 101 x\r\n\r\n", ""},
			{masked + connect, frame + "PONG\r\n" + frame + "PING\r\n", frame + "PONG\r\n" + frame + "PING\r\n", ""},
		},
	} {
		for _, size := range []int{1, 1 << 10} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				node, broker := net.Pipe()
				t.Cleanup(func() { _, _ = node.Close(), broker.Close() })
				conn := wire.NewEarlyPingConn(node)
				for _, e := range exchanges {
					asked, answered, read := make([]byte, len(e.ask)), make([]byte, len(e.answered)), make([]byte,
						len(e.read))
					var work errgroup.Group
					work.Go(func() error {
						if _, err := io.ReadFull(broker, asked); err != nil {
							return err
						}
						work.Go(func() error {
							_, err := io.ReadFull(broker, answered)
							return err
						})
						for told := []byte(e.told); len(told) > 0; {
							n := min(size, len(told))
							if _, err := broker.Write(told[:n]); err != nil {
								return err
							}
							told = told[n:]
						}
						return nil
					})
					if e.ask != "" {
						if _, err := io.WriteString(conn, e.ask); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := io.ReadFull(conn, read); err != nil {
						t.Fatal(err)
					}
					if err := work.Wait(); err != nil {
						t.Fatal(err)
					}
					if string(asked) != e.ask || string(read) != e.read || string(answered) != e.answered {
						t.Errorf("told %q %d bytes at a time: asked %q, read %q, answered %q, want %q, %q, %q",
							e.told, size, asked, read, answered, e.ask, e.read, e.answered)
					}
				}
			})
		}
	}
}

// broker is the other end of a connection.
type broker struct {
	net.Conn
	io.Reader
	heard bytes.Buffer
}

func (b *broker) Read(p []byte) (int, error)  { return b.Reader.Read(p) }
func (b *broker) Write(p []byte) (int, error) { return b.heard.Write(p) }

// The time of a TLS handshake, which comes with the first write, does not count.
func TestSinceConnectExcludesHandshake(t *testing.T) {
	t.Parallel()
	for _, writes := range [][]string{{"CONNECT {}\r\n"}, {"GET / HTTP/1.1\r\n\r\n",
		"\x82\x8c\x00\x00\x00\x00CONNECT {}\r\n"}} {
		w := &handshaking{}
		conn := wire.NewEarlyPingConn(w)
		w.during = func() {
			if d := conn.SinceConnect(); d != 0 {
				t.Errorf("asked for %v while %q is on its way", d, writes)
			}
		}
		for _, text := range writes {
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
		}
		if conn.SinceConnect() <= 0 {
			t.Errorf("not asked after %q", writes)
		}
	}
}

// handshaking delays its first write.
type handshaking struct {
	net.Conn
	during func()
}

func (h *handshaking) Write(b []byte) (int, error) { h.during(); return len(b), nil }

// Many PINGs take no memory.
func TestPingFloodTakesNoMemory(t *testing.T) {
	const pings = 160_000
	told := strings.Repeat("PING\r\n", pings) + "PONG\r\n"
	b := &broker{Reader: strings.NewReader(told)}
	b.heard.Grow(pings * 6)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before) // of the whole process: this test is not parallel
	conn := wire.NewEarlyPingConn(b)
	if _, err := io.WriteString(conn, "CONNECT {}\r\n"); err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(conn); err != nil || string(read) != "PONG\r\n" {
		t.Fatalf("read %.80q, %v", read, err)
	}
	runtime.ReadMemStats(&after)
	if n := strings.Count(b.heard.String(), "PONG"); n != pings {
		t.Fatalf("%d answers to %d PINGs", n, pings)
	}
	if taken, limit := after.TotalAlloc-before.TotalAlloc, uint64(16<<20); taken > limit {
		t.Errorf("%d PINGs took %d bytes, limit %d", pings, taken, limit)
	}
}
