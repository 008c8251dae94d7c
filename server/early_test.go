package server_test

import (
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// The broker takes so long to admit a connection that it sends a PING first, as a nats-server does after two seconds.
func TestAnAdmissionAfterAPingCounts(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"nats", "tls"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.stop()
			f.early = newEarlyPings()
			f.start()
			url := scheme + "://" + f.url()
			f.set(func() {
				f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
					e := f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) { e.Configuration["brokers"] = url })
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

// The broker refuses late, as when its provisioners are down. The node must not take its certificate for disowned,
// and the log must not blame the token.
func TestALateRefusalIsNotTheProvisioners(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.SetLate(time.Second) // a PING comes after two
	cfg.RefusedLimit = time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.stop()
	f.early = newEarlyPings()
	f.set(func() { f.admit = func(string, *x509.Certificate) bool { return false } })
	f.start()
	for n, refused := 1, 0; refused < 3; n++ { // earlier there was no broker
		if err := a.await(server.EventFailed, n).Err; strings.Contains(err.Error(), "Authorization Violation") {
			refused++
		}
	}
	if f.countLog("fleet not reached", "no provisioner answered the broker in time whether to admit this node",
		"start the provisioner") == 0 {
		t.Errorf("the log does not say why:\n%s", f.log.String())
	}
	if n := f.countLog("mode entered", "mode=provisioning"); n != 1 {
		t.Errorf("the node presented its token %d times, want the first alone:\n%s", n, f.log.String())
	}
}

// A forger on the network appends a refusal to what the broker sends before TLS. The node must not believe it, and
// must not present its token.
func TestUnencryptedRefusalsAreIgnored(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	forger := newForgedRoad(t, f.url(), "-ERR 'Authorization Violation'\r\n")
	_, a := f.strayNode(t, forger.Addr().String(), time.Nanosecond)
	a.await(server.EventConnected, 1) // with its certificate, to a broker of the token
	f.awaitLog("ever reached", "unencrypted data after the broker's first line")
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want 1", n)
	}
}

// earlyPings is a broker that admits a connection only after it has sent it a PING. It finds out from its log.
type earlyPings struct {
	mu   sync.Mutex               // guards the fields below
	sent map[string]chan struct{} // by address; closed after the PING
}

func newEarlyPings() *earlyPings {
	return &earlyPings{sent: make(map[string]chan struct{})}
}

// wait waits until a PING was sent to an address, or the test's patience is over.
func (e *earlyPings) wait(address string) {
	select {
	case <-e.to(address, false):
	case <-time.After(patience):
	}
}

// to returns a channel that is closed once a PING was sent to an address; now closes it.
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

// Tracef sees which PING goes to which address.
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
