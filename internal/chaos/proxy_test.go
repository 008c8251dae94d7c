package chaos_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A proxy is a bad network between nodes and broker: it cuts and stalls connections, even in the middle of a message.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup
	mode     atomic.Int32
	thawed   atomic.Pointer[chan struct{}] // closed when stalled connections continue

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
}

// Faults of a proxy, in each direction, after some bytes.
const (
	passes = iota
	cuts   // ends the connection
	stalls // holds it until the proxy is told to pass
)

// most bounds the bytes before a fault: a whole enrollment has about 8,000 in either direction.
const most = 8000

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.set(passes)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.set(passes)
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set changes the fault, for existing connections too, and continues stalled ones.
func (p *proxy) set(mode int32) {
	p.mode.Store(mode)
	c := make(chan struct{})
	if before := p.thawed.Swap(&c); before != nil {
		close(*before)
	}
}

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		p.mu.Lock()
		p.conns[from], p.conns[to] = true, true
		p.mu.Unlock()
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			p.wg.Go(func() {
				p.pump(pair[0], pair[1])
				p.mu.Lock()
				delete(p.conns, from)
				delete(p.conns, to)
				p.mu.Unlock()
				_ = from.Close()
				_ = to.Close()
			})
		}
	}
}

// pump copies one direction of a connection.
func (p *proxy) pump(from, to net.Conn) {
	left := rand.IntN(most)
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		thawed := *p.thawed.Load()
		mode := p.mode.Load()
		if mode == passes || n < left {
			left -= n
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			continue
		}
		cut := max(0, min(left, n))
		if _, err := to.Write(b[:cut]); err != nil || mode == cuts {
			return
		}
		<-thawed
		if _, err := to.Write(b[cut:n]); err != nil {
			return
		}
		left = rand.IntN(most)
	}
}
