package broker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// BenchmarkConnectThroughCallout is a connection with a token to a server
// outside of the process: client, server and the answer to its question.
func BenchmarkConnectThroughCallout(b *testing.B) {
	o := newOutside(b, nil)
	url := o.server.ClientURL()
	b.ReportAllocs()
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
