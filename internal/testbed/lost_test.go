package testbed_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/store"
)

// careless returns JetStream with the provisioners' login.
func careless(t *testing.T, f *testbed.Fleet) jetstream.JetStream {
	t.Helper()
	conn, err := f.Daemon().Connect("careless")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// letIn reports whether a node gets a certificate at its first request.
func letIn(f *testbed.Fleet, n *simnode.Node) bool {
	nc, err := simnode.Dial(f.URL(), n.Token)
	if err != nil {
		return false
	}
	defer nc.Close()
	r, err := simnode.Enroll(f.Context(), nc, n.Request())
	return err == nil && r.Refusal == nil
}

// TestADeletedStreamStopsEnrollment deletes each stream of records under a provisioner: no node is admitted, an alarm
// names the stream, and no start creates it again, since all names would be free.
func TestADeletedStreamStopsEnrollment(t *testing.T) {
	t.Parallel()
	for _, stream := range store.DurableStreams() {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Servers: 1})
			first := f.Node("web1.example.net")
			f.Apply(first, f.Enroll(first))
			limited := f.Node("web3.example.net")
			limited.Token = f.Token(testbed.Limited(1))
			f.Apply(limited, f.Enroll(limited))
			js := careless(t, f)
			if err := js.DeleteStream(f.Context(), stream); err != nil {
				t.Fatal(err)
			}
			f.Eventually("an alarm names it", func() bool {
				return strings.Contains(f.WaitAlarm(wire.CodeStoreUnavailable), stream)
			})
			for _, n := range []string{first.Identity, "web2.example.net"} {
				if letIn(f, f.Node(n)) {
					t.Errorf("%s is let in", n)
				}
			}
			f.Stop()
			refuses(t, f, store.ErrDamaged)
			joins := try(t, f, "second.fleet.test")
			f.Eventually("one that was never there says so too", func() bool {
				return joins.said(store.ErrDamaged.Error()) || joins.serves()
			})
			if joins.serves() {
				t.Error("one that was never there serves")
			}
			_ = joins.end()
		})
	}
}

func TestStreamsOfRecordsCannotBePurged(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	js := careless(t, f)
	for _, name := range store.DurableStreams() {
		stream, err := js.Stream(f.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(f.Context()); err == nil {
			t.Errorf("%s is purged", name)
		}
	}
	if code := f.Refused(f.Node(n.Identity)); code != wire.CodeIdentityTaken {
		t.Errorf("another machine of that name: %q", code)
	}
	f.Check()
}
