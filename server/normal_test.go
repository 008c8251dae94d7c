package server_test

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

func TestLifeInNormalMode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	c := f.claims()
	c.Registration = filepath.Join(t.TempDir(), "registration.json")
	writeToken(t, cfg.TokenFile, c)
	const data = "{ \"rack\": 7 }\n"
	writeFile(t, c.Registration, data)
	cfg.AliveInterval = 50 * time.Millisecond
	cfg.SetRegistration(50 * time.Millisecond)
	a := f.run(cfg)
	f.await("two of everything", func() bool {
		return len(f.lifecycle("alive")) >= 2 && len(f.registrations()) >= 2 && len(f.lifecycle("provisioned")) == 1
	})
	if err := a.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	f.await("shutdown event", func() bool { return len(f.lifecycle("shutdown")) == 1 })

	if n := len(f.lifecycle("startup")); n != 1 {
		t.Errorf("%d startup events, want 1", n)
	}
	for _, m := range f.registrations() {
		if string(m.Data) != data {
			t.Errorf("registration data = %q, want the file as it is", m.Data)
		}
	}
	// Registration data comes by another subscription, whose order with this one is not known.
	events := slices.DeleteFunc(f.received(), func(m *nats.Msg) bool {
		return m.Subject == wire.RegistrationSubject("web1.example.net")
	})
	last := events[len(events)-1]
	if last.Subject != wire.EventSubject("web1.example.net", "shutdown") ||
		last.Header.Get("Content-Type") != "application/cloudevents+json" {
		t.Errorf("last event on %s with %v", last.Subject, last.Header)
	}
	serial := f.confirmations()[0].Serial
	ids := map[string]bool{}
	for _, typ := range []string{"startup", "provisioned", "alive", "shutdown"} {
		for _, e := range f.lifecycle(typ) {
			ids[e.ID] = true
			if e.SpecVersion != "1.0" || e.Type != "io.muster.server."+typ || e.Subject != "web1.example.net" ||
				e.Source != "spiffe://"+trustDomain+"/node/web1.example.net" ||
				e.DataContentType != "application/json" {
				t.Errorf("event = %+v", e)
			}
			if d := e.Data; d.Identity != "web1.example.net" || d.Version != "1.2.3" || d.Mode != "normal" ||
				d.Serial != serial || d.Boot == "" {
				t.Errorf("%s event's data = %+v", typ, d)
			}
			for _, at := range []string{e.Time, e.Data.Expires} {
				if _, err := time.Parse(time.RFC3339, at); err != nil {
					t.Errorf("%s event's time: %v", typ, err)
				}
			}
		}
	}
	if total := 3 + len(f.lifecycle("alive")); len(ids) != total {
		t.Errorf("%d event ids for %d events", len(ids), total)
	}
}

func TestTheFleetIsReachedAgainAfterItsBrokerRestarts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.run(f.node("web1.example.net"))
	a.await(server.EventConnected, 1)
	f.await("startup event", func() bool { return len(f.lifecycle("startup")) == 1 })
	f.stop()
	a.await(server.EventFailed, 3)
	if n := f.countLog("fleet not reached"); n == 0 || n > 2 { // 2: a stopping broker may answer differently
		t.Errorf("logged %d times, want once per change:\n%s", n, f.log.String())
	}
	f.start()
	a.await(server.EventConnected, 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.await("shutdown event", func() bool { return len(f.lifecycle("shutdown")) == 1 })
	if n := len(f.lifecycle("startup")); n != 1 {
		t.Errorf("%d startup events of one start, want 1", n)
	}
}

func TestNormalModeAcceptsOnlyABroker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
				e.Configuration["brokers"] = "localhost:" + itoa(f.port)
			})}
		}
	})
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.serverTLS = f.brokerTLS(wire.RoleNode)
	f.start()
	connected := make(chan struct{})
	var once sync.Once
	f.set(func() {
		f.admit = func(string, *x509.Certificate) bool { once.Do(func() { close(connected) }); return true }
	})
	a = f.run(cfg)
	a.await(server.EventFailed, 2)
	f.awaitLog("fleet not reached", "want a broker")
	select {
	case <-connected:
		t.Error("the node spoke to a node in a broker's place")
	default:
	}
}

func TestAConfirmationIsSentUntilItIsAccepted(t *testing.T) {
	t.Parallel()
	tests := map[string]func(f *fleet) func(*wire.Applied) *wire.Reply{
		"no answer": func(*fleet) func(*wire.Applied) *wire.Reply {
			return func(*wire.Applied) *wire.Reply { return nil }
		},
		"busy": func(*fleet) func(*wire.Applied) *wire.Reply {
			return func(a *wire.Applied) *wire.Reply {
				return &wire.Reply{ID: a.ID, Refusal: &wire.Refusal{Code: wire.CodeBusy, Message: "busy",
					RetryAfter: 10}}
			}
		},
		"for another serial": func(*fleet) func(*wire.Applied) *wire.Reply {
			return func(a *wire.Applied) *wire.Reply {
				return &wire.Reply{ID: a.ID, Applied: &wire.Accepted{Serial: "1"}}
			}
		},
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.applied = answer(f) })
			cfg := f.node("web1.example.net")
			cfg.RequestTimeout = 50 * time.Millisecond
			a := f.run(cfg)
			a.await(server.EventConnected, 1) // works anyway
			asked := len(f.requests())        // more than once if a reply took longer than the time-out
			f.await("many confirmations", func() bool { return len(f.confirmations()) >= 5 })
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			if !exists(filepath.Join(cfg.SSLDir, "..data", "applied.json")) {
				t.Fatal("nothing is left to confirm")
			}
			f.set(func() { f.applied = nil })
			a = f.run(cfg) // and after a restart
			a.await(server.EventConfirmed, 1)
			f.await("provisioned event", func() bool { return len(f.lifecycle("provisioned")) == 1 })
			if exists(filepath.Join(cfg.SSLDir, "..data", "applied.json")) {
				t.Error("still to be confirmed")
			}
			if n := len(f.requests()); n != asked {
				t.Errorf("%d enroll requests, want no more than the first %d", n, asked)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestADisownedNodeEnrollsAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []wire.Code{wire.CodeNotIssued, wire.CodeAppliedSignature} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			disown := func(a *wire.Applied) *wire.Reply {
				return &wire.Reply{ID: a.ID, Refusal: &wire.Refusal{Code: code, Message: wire.MeaningOf(code).Public}}
			}
			f.set(func() {
				f.enroll = func(r *wire.EnrollRequest) *wire.Reply { // as Choria's helpers configure nodes
					return &wire.Reply{ID: r.ID, Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
						e.Configuration["plugin.choria.server.provision"] = "false"
					})}
				}
				f.applied = disown
			})
			cfg := f.node("web1.example.net")
			cfg.RequestTimeout = time.Second
			a := f.run(cfg)
			a.await(server.EventApplied, 3)
			f.set(func() { f.applied = func(*wire.Applied) *wire.Reply { return nil } })
			a.await(server.EventConnected, 1) // unconfirmed in normal mode
			f.set(func() { f.applied = disown })
			a.await(server.EventMode, 3)
			f.set(func() { f.applied = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}

func TestAnExpiredCertificateLeadsBackToProvisioning(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.ttl = time.Hour })
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	a := f.run(cfg)
	first := a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	clock.advance(2 * time.Hour)
	f.set(func() { f.ttl = 24 * time.Hour })
	second := a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	if first.Serial == second.Serial {
		t.Error("the same certificate again")
	}
	if string(f.requests()[0].CSR) == "" || !keyFits(t, snapshot(t, cfg)) {
		t.Error("key and certificate do not fit")
	}
}

func TestLongRefusedByTheBrokerItEnrollsAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.set(func() { f.admit = func(_ string, cert *x509.Certificate) bool { return cert == nil } })
	f.broker.DisconnectClientByID(f.fleetClient(t))
	a.await(server.EventApplied, 2)
	f.set(func() { f.admit = nil })
	a.await(server.EventConnected, 2)
}

// Brokers refuse everything for a while, as without their store. The token has expired by the end.
func TestANodeReturnsOnceItsCertificateIsAdmittedAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	f.set(func() { f.admit = func(string, *x509.Certificate) bool { return false } })
	f.broker.DisconnectClientByID(f.fleetClient(t))
	f.awaitLog("mode entered", "certificate is refused by the broker")
	f.awaitLog("enrollment failed")
	f.set(func() { f.admit = func(_ string, cert *x509.Certificate) bool { return cert != nil } })
	a.await(server.EventConnected, 2)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want the first alone", n)
	}
}

// Anything between node and broker can end a handshake with an alert, and must not make the node present its token.
func TestAForgedAlertDoesNotLeadToProvisioning(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	forger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	go func() {
		for {
			conn, err := forger.Accept()
			if err != nil {
				return // closed
			}
			_, _ = conn.Write([]byte(`INFO {"server_id":"x","version":"2.15.2","headers":true,"max_payload":1048576,"tls_required":true,"tls_available":true}` + "\r\n"))
			_, _ = conn.Read(make([]byte, 4096))                                // ClientHello
			_, _ = conn.Write([]byte{0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x2c}) // fatal, certificate_revoked
			_, _ = conn.Read(make([]byte, 4096))
			_ = conn.Close()
		}
	}()
	_, a := f.strayNode(t, forger.Addr().String(), time.Nanosecond)
	a.await(server.EventConnected, 1) // with its certificate, to a broker of the token
	f.awaitLog("ever reached", "remote error: tls")
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want 1", n)
	}
}
