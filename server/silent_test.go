package server_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/server"
)

// A road is the network between node and broker: it can fall silent or be cut.
type road struct {
	net.Listener
	silent atomic.Bool // drops everything, and ends nothing

	mu    sync.Mutex
	conns []net.Conn // guarded by mu: the node's ends
	wg    sync.WaitGroup
}

func newRoad(t *testing.T, to string) *road { return newForgedRoad(t, to, "") }

// newForgedRoad inserts forged data behind the broker's first data.
func newForgedRoad(t *testing.T, to, forged string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{Listener: l}
	r.wg.Go(func() {
		for {
			node, err := l.Accept()
			if err != nil {
				return // closed
			}
			broker, err := net.Dial("tcp", to)
			if err != nil {
				_ = node.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, node)
			r.mu.Unlock()
			r.pass(node, broker, "")
			r.pass(broker, node, forged)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

// pass copies from one end to the other, and inserts forged behind the first data.
func (r *road) pass(from, to net.Conn, forged string) {
	r.wg.Go(func() {
		defer func() { _, _ = from.Close(), to.Close() }()
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if r.silent.Load() {
				_, _ = io.Copy(io.Discard, from)
				return
			}
			if _, err := to.Write(append(b[:n:n], forged...)); err != nil {
				return
			}
			forged = ""
		}
	})
}

// cut ends every connection.
func (r *road) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// All data is lost while the connection stays, as when a machine loses power or a router forgets it.
func TestASilentBrokerIsNoticed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	way := newRoad(t, f.url())
	f.pushes("brokers", way.Addr().String())
	cfg := f.node("web1.example.net")
	cfg.SetPing(50 * time.Millisecond)
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	way.silent.Store(true)
	f.awaitLog("connection to the fleet lost", "stale connection")
	way.silent.Store(false)
	a.await(server.EventConnected, 2)
}
