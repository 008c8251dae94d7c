package testbed_test

import (
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/jwt"
)

// Nodes enroll by WebSocket, plain and sealed. Where TLS reaches the broker they also join the fleet.
func TestNodesEnrollByWebSocket(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"wss to the broker": false, "ws, from a proxy that ends TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
				c.Broker.WebSocket.Listen, c.Broker.WebSocket.Plain = "127.0.0.1:0", plain
			}})
			url := f.Daemon().WebSocketURL()
			token := func(edit func(*jwt.Claims)) string {
				return f.Token(func(c *jwt.Claims) {
					c.Brokers, c.Secure = url, !plain
					if err := c.SetLimits(jwt.Limits{CA: f.Daemon().CAFingerprint()}); err != nil {
						t.Fatal(err)
					}
					edit(c)
				})
			}
			agents := []*testbed.Agent{
				f.Agent("plain.example.net", token(func(*jwt.Claims) {})),
				f.Agent("sealed.example.net", token(f.Seal)),
			}
			f.WaitProvisioned(agents...)
			if plain { // without a certificate there is no access to the fleet
				if strings.Contains(f.Log(), `"msg":"connected to the fleet"`) {
					t.Error("a node joined the fleet")
				}
				f.Check()
				return
			}
			f.Eventually("both nodes are in the fleet", func() bool {
				return strings.Count(f.Log(), `"msg":"connected to the fleet"`) >= len(agents)
			})
			f.Check()
		})
	}
}
