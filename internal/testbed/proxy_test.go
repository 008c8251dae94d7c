package testbed

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A Proxy controls the network between nodes and the broker: it records every byte and can alter, drop, repeat, delay
// and forge messages. It passes TLS unchanged. Make one with [Fleet.Proxy].
type Proxy struct {
	t        testing.TB
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string                         // guarded by mu: broker's host:port
	alter  func(l *Link, f Frame) []Frame // guarded by mu: nil passes everything
	links  []*Link                        // guarded by mu
	bytes  [2]bytes.Buffer                // guarded by mu: in order, by [Side]
	frames []Frame                        // guarded by mu: in order
}

// A Side is where a frame comes from.
type Side int

// The sides of a proxy.
const (
	FromNode Side = iota
	FromBroker
)

// A Frame is one line of the NATS protocol with its payload.
type Frame struct {
	From    Side
	Op      string // INFO, CONNECT, SUB, PUB, HPUB, MSG, HMSG, PING, ...
	Args    string // the rest of the line
	Payload []byte // of PUB, HPUB, MSG and HMSG, headers first
}

// HasPayload reports whether f is a message.
func (f Frame) HasPayload() bool {
	switch f.Op {
	case "PUB", "HPUB", "MSG", "HMSG":
		return true
	}
	return false
}

// Subject returns the subject of a message.
func (f Frame) Subject() string {
	subject, _, _ := strings.Cut(f.Args, " ")
	return subject
}

// With returns f with another payload.
func (f Frame) With(payload []byte) Frame {
	args := strings.Fields(f.Args)
	args[len(args)-1] = strconv.Itoa(len(payload))
	f.Args, f.Payload = strings.Join(args, " "), payload
	return f
}

// Bytes returns f as it is sent.
func (f Frame) Bytes() []byte {
	line := f.Op
	if f.Args != "" {
		line += " " + f.Args
	}
	b := []byte(line + "\r\n")
	if f.HasPayload() {
		b = append(append(b, f.Payload...), "\r\n"...)
	}
	return b
}

// A Link is one connection through a proxy.
type Link struct {
	Number int // from 1, in order of their start

	to [2]net.Conn // by the side from which the data comes
	mu [2]sync.Mutex
}

// Send sends frames over the link as if from the side.
func (l *Link) Send(from Side, frames ...Frame) {
	l.mu[from].Lock()
	defer l.mu[from].Unlock()
	for _, f := range frames {
		_, _ = l.to[from].Write(f.Bytes()) // the other end may be gone
	}
}

// Close ends the link.
func (l *Link) Close() {
	for _, w := range l.to {
		_ = w.Close()
	}
}

// Proxy starts a proxy to the fleet's broker that passes everything. It ends with the test.
func (f *Fleet) Proxy() *Proxy {
	f.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	p := &Proxy{t: f.t, listener: listener, target: strings.TrimPrefix(f.URL(), "nats://")}
	p.wg.Go(p.accept)
	f.t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is the proxy's, in the form of [Fleet.URL].
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Alter passes each later frame through what, which returns the frames to send instead. Several goroutines call it.
// Nil passes everything.
func (p *Proxy) Alter(what func(l *Link, f Frame) []Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alter = what
}

// Target sends later connections to the broker at url.
func (p *Proxy) Target(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = strings.TrimPrefix(url, "nats://")
}

// Recorded returns every byte from the side, of all connections.
func (p *Proxy) Recorded(from Side) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.bytes[from].Bytes())
}

// Frames returns the recorded frames that satisfy want.
func (p *Proxy) Frames(want func(Frame) bool) []Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Frame
	for _, f := range p.frames {
		if want(f) {
			all = append(all, f)
		}
	}
	return all
}

// Cut ends every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := slices.Clone(p.links)
	p.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}

func (p *Proxy) accept() {
	for {
		node, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		broker, err := net.Dial("tcp", target)
		if err != nil {
			_ = node.Close()
			continue
		}
		p.mu.Lock()
		l := &Link{Number: len(p.links) + 1, to: [2]net.Conn{FromNode: broker, FromBroker: node}}
		p.links = append(p.links, l)
		p.mu.Unlock()
		for side, conn := range map[Side]net.Conn{FromNode: node, FromBroker: broker} {
			p.wg.Go(func() {
				p.pump(l, side, conn)
				_ = node.Close()
				_ = broker.Close()
			})
		}
	}
}

// pump copies what comes from one side of a link.
func (p *Proxy) pump(l *Link, from Side, conn net.Conn) {
	r := bufio.NewReader(recorder{p, from, conn})
	for {
		first, err := r.Peek(1)
		if err != nil {
			return
		}
		if first[0] < ' ' { // TLS: no line of NATS begins like this
			_, _ = io.Copy(l.to[from], r)
			return
		}
		f, err := readFrame(r, from)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.frames = append(p.frames, f)
		alter := p.alter
		p.mu.Unlock()
		frames := []Frame{f}
		if alter != nil {
			frames = alter(l, f)
		}
		l.Send(from, frames...)
	}
}

// recorder keeps everything read from a connection.
type recorder struct {
	p    *Proxy
	from Side
	conn net.Conn
}

func (r recorder) Read(b []byte) (int, error) {
	n, err := r.conn.Read(b)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.bytes[r.from].Write(b[:n])
	return n, err
}

func readFrame(r *bufio.Reader, from Side) (Frame, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return Frame{}, err
	}
	f := Frame{From: from}
	f.Op, f.Args, _ = strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	if !f.HasPayload() {
		return f, nil
	}
	args := strings.Fields(f.Args)
	if len(args) == 0 {
		return Frame{}, fmt.Errorf("%q", line)
	}
	size, err := strconv.Atoi(args[len(args)-1])
	if err != nil || size < 0 || size > 16<<20 {
		return Frame{}, fmt.Errorf("%q", line)
	}
	b := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(r, b); err != nil {
		return Frame{}, err
	}
	f.Payload = b[:size]
	return f, nil
}
