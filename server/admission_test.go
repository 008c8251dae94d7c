package server_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

func TestEnrollmentOverEveryScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"nats", "tls", "ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.stop()
			switch scheme {
			case "ws":
				f.websocket = natsserver.WebsocketOpts{Host: "127.0.0.1", Port: -1, NoTLS: true}
			case "wss":
				f.websocket = natsserver.WebsocketOpts{Host: "127.0.0.1", Port: -1, TLSConfig: f.serverTLS}
			}
			f.start()
			url := scheme + "://" + f.url()
			if strings.HasPrefix(scheme, "ws") {
				url = f.broker.WebsocketURL()
			}
			fleetURL := url // with a certificate, there is no way but TLS
			if scheme == "ws" {
				fleetURL = f.url()
			}
			f.set(func() {
				f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
					e := f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) { e.Configuration["brokers"] = fleetURL })
					return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: e}
				}
			})
			cfg := f.node("web1.example.net")
			c := f.claims()
			c.Brokers = url
			writeToken(t, cfg.TokenFile, c)
			a := f.run(cfg)
			a.await(server.EventConfirmed, 1)
			a.await(server.EventConnected, 1)
			if n := f.countLog("failed"); n > 0 {
				t.Errorf("%d tries failed:\n%s", n, f.log.String())
			}
		})
	}
}

// TestALateRefusalDoesNotDisown has a broker that refuses after a while, as one whose
// provisioners are down: a node with a certificate does not take it for disowned, and
// the log does not blame the token.
func TestALateRefusalDoesNotDisown(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.SetLate(50 * time.Millisecond)
	cfg.RefusedLimit = time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.stop()
	f.set(func() {
		f.admit = func(string, *x509.Certificate) bool {
			time.Sleep(100 * time.Millisecond)
			return false
		}
	})
	f.start()
	for n, refused := 1, 0; refused < 3; n++ { // the failures before are of the broker that was down
		if err := a.await(server.EventFailed, n).Err; strings.Contains(err.Error(), "Authorization Violation") {
			refused++
		}
	}
	f.awaitLog("fleet not reached", "no provisioner told the broker in time whether to admit this node", "start the provisioner")
	if n := f.countLog("mode entered", "mode=provisioning"); n != 1 {
		t.Errorf("the node presented its token %d times, want the first alone:\n%s", n, f.log.String())
	}
}

// TestARefusalInClearIsNoBrokersWord has a forger on the way put a refusal behind what a
// broker says before TLS, and pass on all else: the node does not present its token.
func TestARefusalInClearIsNoBrokersWord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	forger := newForgedRoad(t, f.url(), "-ERR 'Authorization Violation'\r\n")
	_, a := f.strayNode(t, forger.Addr().String(), time.Nanosecond)
	a.await(server.EventConnected, 1) // through the forger, or by the certificate to a broker of the token
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want 1", n)
	}
}
