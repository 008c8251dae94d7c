package broker_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// BenchmarkConnectThroughCallout is a connection with a token to a server
// outside of the process: client, server and the answer to its question.
func BenchmarkConnectThroughCallout(b *testing.B) {
	connects(b, newOutside(b, nil))
}

// BenchmarkConnectThroughCalloutFar is the same with a provisioner that is 50 ms away from
// the server, and with 100 clients a core at once.
func BenchmarkConnectThroughCalloutFar(b *testing.B) {
	o := newServer(b, nil)
	o.external = o.provisioner(b, o.keys, "nats://"+far(b, o.server.Addr().String(), 50*time.Millisecond))
	b.SetParallelism(100)
	connects(b, o)
}

func connects(b *testing.B, o *outside) {
	b.Helper()
	url := o.url
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			nc, err := nats.Connect(url, nats.Token(goodToken), nats.Name(strings.Repeat("A", 22)), nats.NoReconnect())
			if err != nil {
				b.Error(err)
				return
			}
			nc.Close()
		}
	})
}

// far returns an address that leads to to, with what is sent either way arriving after
// delay.
func far(b *testing.B, to string, delay time.Duration) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				return
			}
			go late(near, there, delay)
			go late(there, near, delay)
		}
	}()
	return l.Addr().String()
}

// late copies from one connection to another until one of them ends.
func late(from, to net.Conn, delay time.Duration) {
	type chunk struct {
		at    time.Time
		bytes []byte
	}
	way := make(chan chunk, 1<<16)
	go func() {
		defer func() { _ = to.Close() }()
		for c := range way {
			<-time.After(time.Until(c.at))
			if _, err := to.Write(c.bytes); err != nil {
				_ = from.Close()
				return
			}
		}
	}()
	defer close(way)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		way <- chunk{time.Now().Add(delay), b[:n]}
	}
}
