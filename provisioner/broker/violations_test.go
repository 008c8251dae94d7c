package broker_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"muster/provisioner/broker"
)

// TestWhoSaysMuchInVainIsDropped has machines with a token say what they may not: now and then
// they are told so; over and over, or at length, ends the connection, and nobody else's.
func TestWhoSaysMuchInVainIsDropped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x01", 16000) // 64,000 bytes as a server quotes it
	for name, url := range map[string]func(*testing.T) string{
		"embedded": func(t *testing.T) string { return newSite(t).URL() },
		"broker run": func(t *testing.T) string {
			keys, err := broker.NewKeys()
			if err != nil {
				t.Fatal(err)
			}
			o := &outside{site: newSite(t), keys: keys}
			address, _ := runFile(t, serverFile(t, keys, nil))
			o.provisioner(t, keys, "nats://"+address)
			return "nats://" + address
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := url(t)
			enter := func() *machine {
				t.Helper()
				m, said := come(t, url, goodToken, "127.0.0.1")
				if m == nil {
					t.Fatalf("a machine is told %q", said)
				}
				return m
			}
			bystander := enter()
			for what, tt := range map[string]struct {
				line  string
				times int
				stays bool
			}{
				"a few short lines":       {"PUB muster.v1.other 2\r\n{}\r\n", 40, true},
				"many short lines":        {"PUB muster.v1.other 2\r\n{}\r\n", 80, false},
				"many subscriptions":      {"SUB muster.v1.other 1\r\n", 80, false},
				"a long subject":          {"PUB " + long + " 2\r\n{}\r\n", 1, false},
				"a long subscription":     {"SUB " + long + " 1\r\n", 1, false},
				"a long queue":            {"SUB muster.v1.other " + long + " 1\r\n", 1, false},
				"many that are permitted": {"PUB muster.v1.applied 2\r\n{}\r\n", 100, true},
			} {
				m := enter()
				if _, err := fmt.Fprint(m.conn, strings.Repeat(tt.line, tt.times)); err != nil {
					t.Fatal(err)
				}
				answers := func() bool { // to a PING, after all that is said against the lines
					_, err := fmt.Fprint(m.conn, "PING\r\n")
					for err == nil {
						if said := m.said(); !strings.HasPrefix(said, "-ERR") {
							return said == ""
						}
					}
					return false
				}
				if !tt.stays {
					eventually(t, "end of the connection by "+what, func() bool { return !answers() })
				} else if !answers() {
					t.Errorf("%s end the connection", what)
				}
			}
			if !bystander.stays() {
				t.Error("a machine that says nothing has lost its connection")
			}
		})
	}
}

// TestWhoSaysMuchInVainByWebSocketIsDropped is the same for one who comes by WebSocket.
func TestWhoSaysMuchInVainByWebSocketIsDropped(t *testing.T) {
	t.Parallel()
	s := newSite(t, byWebSocket(true))
	c := s.dialWeb(t).mustHello(map[string]any{"auth_token": goodToken})
	for range 80 {
		_, _ = io.WriteString(c.conn, "PUB muster.v1.other 2\r\n{}\r\n") // it may have been dropped already
	}
	eventually(t, "end of the connection", func() bool { return slices.Contains(c.say(), "EOF") })
}
