package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// TestWhoIsAdmittedAfterAPingIsAdmitted has a broker that takes so long over each connection
// that it asks meanwhile whether the node is still there: a nats-server does after two seconds.
func TestWhoIsAdmittedAfterAPingIsAdmitted(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"nats", "tls", "ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.stop()
			f.early = newEarlyPings(scheme == "wss")
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

// TestARefusalForWantOfAProvisionerIsNobodysWord has a broker that refuses after a while, as one whose
// provisioners are down: a node with a certificate must not take it for disowned, and
// whoever reads its log not look for a mistake in its token.
func TestARefusalForWantOfAProvisionerIsNobodysWord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.SetLate(time.Second) // a PING is sent after two
	cfg.RefusedLimit = time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.stop()
	f.early = newEarlyPings(false)
	f.set(func() { f.admit = func(string, *x509.Certificate) bool { return false } })
	f.start()
	for n, refused := 1, 0; refused < 3; n++ { // before that, nobody was there
		if err := a.await(server.EventFailed, n).Err; strings.Contains(err.Error(), "Authorization Violation") {
			refused++
		}
	}
	if f.countLog("fleet not reached", "no provisioner told the broker in time whether to admit this node",
		"start the provisioner") == 0 {
		t.Errorf("the log does not say why:\n%s", f.log.String())
	}
	if n := f.countLog("mode entered", "mode=provisioning"); n != 1 {
		t.Errorf("the node presented its token %d times, want the first alone:\n%s", n, f.log.String())
	}
}

// TestWhatIsSaidInClearIsNoBrokersWord has a forger on the way put a refusal behind what a
// broker says before TLS, and pass on all else: the node must not take it for the word of a
// broker that has proven itself then, and present its token.
func TestWhatIsSaidInClearIsNoBrokersWord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	forger := newForgedRoad(t, f.url(), "-ERR 'Authorization Violation'\r\n")
	_, a := f.strayNode(t, forger.Addr().String(), time.Nanosecond)
	a.await(server.EventConnected, 1) // by its certificate, to a broker of the token
	f.awaitLog("ever reached", "unencrypted data after the broker's first line")
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want 1", n)
	}
}

// earlyPings is a broker that admits nobody before it has sent him a PING. As its log it sees them.
type earlyPings struct {
	secure bool // its WebSockets are TLS

	mu   sync.Mutex               // guards what follows
	sent map[string]chan struct{} // by address, closed once there was one
}

func newEarlyPings(secure bool) *earlyPings {
	return &earlyPings{secure: secure, sent: make(map[string]chan struct{})}
}

// configure has a broker take WebSockets as well.
func (e *earlyPings) configure(o *natsserver.Options, config *tls.Config) {
	o.Websocket = natsserver.WebsocketOpts{Host: "127.0.0.1", Port: -1, NoTLS: !e.secure}
	if e.secure {
		o.Websocket.TLSConfig = config
	}
}

// wait returns once an address was sent one, or when a test has waited for long enough.
func (e *earlyPings) wait(address string) {
	select {
	case <-e.to(address, false):
	case <-time.After(patience):
	}
}

// to returns what is closed once an address was sent one, and closes it if it is now.
func (e *earlyPings) to(address string, now bool) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent[address] == nil {
		e.sent[address] = make(chan struct{})
	}
	select {
	case <-e.sent[address]:
	default:
		if now {
			close(e.sent[address])
		}
	}
	return e.sent[address]
}

// Tracef hears what is sent to whom.
func (e *earlyPings) Tracef(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	if address, _, _ := strings.Cut(line, " "); strings.HasSuffix(line, "->> [PING]") {
		e.to(address, true)
	}
}

func (*earlyPings) Noticef(string, ...any) {}
func (*earlyPings) Warnf(string, ...any)   {}
func (*earlyPings) Fatalf(string, ...any)  {}
func (*earlyPings) Errorf(string, ...any)  {}
func (*earlyPings) Debugf(string, ...any)  {}
