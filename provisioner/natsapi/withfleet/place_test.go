package natsapi_test

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/natsapi"
)

// TestAServiceLeavesItsPlaceAndTakesItAgain has a service stand aside, also in the moment
// in which its connection comes back: requests go to nobody then, who asks is told so at
// once, and as soon as it has its place again they are answered.
func TestAServiceLeavesItsPlaceAndTakesItAgain(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	gate := &gate{}
	login, err := nats.NkeyOptionFromSeed(filepath.Join(f.Dir, "cluster", "provisioner"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := nats.Connect(f.URL(), login, nats.SetCustomDialer(gate), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	here := newSeat()
	asking := service(t, f, "test.", nil, func(c *natsapi.Config) { c.Conn, c.Place = own, here.now })
	answered := func() error {
		_, err := asking.Request("test."+wire.SubjectEnroll, []byte("{}"), time.Second)
		return err
	}
	for _, away := range []bool{false, true, false} {
		f.Eventually("requests are answered", func() bool { return answered() == nil })
		if away {
			gate.closed.Store(true)
			if err := own.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		}
		waiting, _ := own.Buffered()
		here.set(true)
		if away {
			f.Eventually("it has begun to leave", func() bool { n, err := own.Buffered(); return err == nil && n > waiting })
			gate.closed.Store(false)
			f.Eventually("it is connected again", own.IsConnected)
		}
		f.Eventually("nobody takes requests", func() bool {
			for range 20 {
				if !errors.Is(answered(), nats.ErrNoResponders) {
					return false
				}
			}
			return true
		})
		here.set(false)
	}
	f.Eventually("requests are answered", func() bool { return answered() == nil })
	f.Check()
}

// A gate lets a client connect, or does not.
type gate struct{ closed atomic.Bool }

// Dial implements nats.CustomDialer.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	if g.closed.Load() {
		return nil, net.ErrClosed
	}
	return net.Dial(network, address)
}

// A seat is what [natsapi.Config].Place says.
type seat struct {
	mu      sync.Mutex
	aside   bool          // guarded by mu
	changed chan struct{} // guarded by mu
}

func newSeat() *seat { return &seat{changed: make(chan struct{})} }

func (s *seat) now() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aside, s.changed
}

func (s *seat) set(aside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside = aside
	close(s.changed)
	s.changed = make(chan struct{})
}
