package server_test

import (
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// strayNode runs an agent that was given a configuration with a broker at the
// address only.
func (f *fleet) strayNode(t *testing.T, address string) (server.Config, *agent) {
	t.Helper()
	return f.strayNodeWith(t, address, func(*server.Config) {})
}

// strayNodeWith is strayNode, of an agent that is configured otherwise.
func (f *fleet) strayNodeWith(t *testing.T, address string, edit func(*server.Config)) (server.Config, *agent) {
	t.Helper()
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
				e.Configuration["brokers"] = address
			})}
		}
	})
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	edit(&cfg)
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	return cfg, a
}

// nowhere returns a listener that hangs up on everybody, and the number of those.
func nowhere(t *testing.T) (net.Listener, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	}()
	return l, &calls
}

func untried(cfg server.Config) bool { return exists(filepath.Join(cfg.SSLDir, "untried")) }

// TestANodeWithWrongBrokersIsTaughtBetter gives a node a configuration that names
// brokers that are not there: it is found at those of its token, also after a
// restart, and can be given another one.
func TestANodeWithWrongBrokersIsTaughtBetter(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l, _ := nowhere(t)
	cfg, a := f.strayNode(t, l.Addr().String())
	if got := a.await(server.EventConnected, 1).Broker; got != "tls://"+f.url() {
		t.Errorf("connected to %s, want the token's, %s", got, f.url())
	}
	f.awaitLog("no broker of the configuration was ever reached", "muster node reconfigure web1.example.net")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	a = f.run(cfg)
	a.await(server.EventConnected, 3) // it looks for its own in between, and comes back
	if !untried(cfg) {
		t.Error("the configuration passes for tried")
	}
	nc := f.client(t, "provisioner")
	f.insist(t, nc, "first", wire.VerbReconfigure)
	a.await(server.EventConfirmed, 1)
	if untried(cfg) {
		t.Error("the configuration does not pass for tried once its broker was reached")
	}
}

// TestANodeFindsItsOwnBrokersWhenTheyCome has the brokers of a configuration be there
// only later, as in a network that the machine is brought to.
func TestANodeFindsItsOwnBrokersWhenTheyCome(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	l, _ := nowhere(t)
	address := l.Addr().String()
	cfg, a := f.strayNode(t, address)
	a.await(server.EventConnected, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("somebody else has the port: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", f.url())
			if err != nil {
				_ = c.Close()
				continue
			}
			pipe := func(to, from net.Conn) { _, _ = io.Copy(to, from); _ = to.Close() }
			go pipe(to, c)
			go pipe(c, to)
		}
	}()
	for n := 2; a.await(server.EventConnected, n).Broker != "tls://"+address; n++ {
	}
	if untried(cfg) {
		t.Error("the configuration does not pass for tried")
	}
}

// TestBrokersThatWereReachedAreWaitedFor has the brokers be away for long: the node
// does not go to those of its token, where all others are provisioned.
func TestBrokersThatWereReachedAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	other, calls := nowhere(t)
	c := f.claims()
	c.Brokers = other.Addr().String() // from now on
	writeToken(t, cfg.TokenFile, c)
	f.stop()
	for n := range 5 {
		a.await(server.EventFailed, n+1)
	}
	f.start()
	a.await(server.EventConnected, 2)
	if n := calls.Load(); n > 0 {
		t.Errorf("%d connections to the token's brokers", n)
	}
}

// TestATokenThatIsRenewedPutsNothingOff has whoever looks after the token write it anew
// more often than the node's patience lasts, as what fetches tokens of a short life does.
func TestATokenThatIsRenewedPutsNothingOff(t *testing.T) {
	t.Parallel()
	renewed := func(cfg *server.Config) {
		cfg.Observe = func(e server.Event) {
			if e.Kind == server.EventFailed {
				now := time.Now()
				if err := os.Chtimes(cfg.TokenFile, now, now); err != nil {
					t.Error(err)
				}
			}
		}
	}
	t.Run("brokers that were never reached", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		l, _ := nowhere(t)
		_, a := f.strayNodeWith(t, l.Addr().String(), renewed)
		a.await(server.EventConnected, 1)
	})
	t.Run("a certificate that is refused", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		cfg := f.node("web1.example.net")
		cfg.RefusedLimit = 100 * time.Millisecond
		renewed(&cfg)
		a := f.run(cfg)
		a.await(server.EventConnected, 1)
		f.set(func() { f.admit = func(_ string, cert *x509.Certificate) bool { return cert == nil } })
		f.broker.DisconnectClientByID(f.fleetClient(t))
		a.await(server.EventApplied, 2)
		f.set(func() { f.admit = nil })
		a.await(server.EventConnected, 2)
	})
}
