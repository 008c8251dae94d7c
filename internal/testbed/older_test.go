package testbed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAClusterFromBeforeNodesHadStreams starts the provisioner on three servers where what
// nodes say is among the events: it is read there, and from then on kept on three as well.
func TestAClusterFromBeforeNodesHadStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	f.Apply(n, given)
	node := dialFleet(t, f.Servers()[0], n, given)
	conn, err := f.Daemon().Connect("the version before")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	events, err := js.Stream(f.Context(), "MUSTER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	f.Stop()
	config := events.CachedInfo().Config
	config.Subjects = append(config.Subjects, wire.AllNodeEvents)
	for _, name := range []string{"MUSTER_LIFECYCLE", "MUSTER_ALIVE"} {
		if err := js.DeleteStream(f.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.UpdateStream(f.Context(), config); err != nil {
		t.Fatal(err)
	}
	say := func(types ...string) {
		t.Helper()
		for _, typ := range types {
			e := fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"x","type":"io.muster.server.%s","time":"2026-03-01T12:00:00Z","data":{"version":"1"}}`, typ)
			if err := node.Publish(wire.EventSubject("web1.example.net", typ), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	say("startup", "alive")
	f.Eventually("what it says is among the events", func() bool {
		info, err := events.Info(f.Context(), jetstream.WithSubjectFilter(wire.AllNodeEvents))
		return err == nil && len(info.State.Subjects) == 2
	})

	f.Start()
	st := f.Daemon().Store()
	heard := make(chan wire.Identity, 8) // more than there are
	following, cancel := context.WithCancel(f.Context())
	defer cancel()
	err = st.FollowSeen(following, func(id wire.Identity, _ time.Time) { heard <- id }, func(time.Time) { cancel() })
	if err != nil || len(heard) == 0 || <-heard != "web1.example.net" {
		t.Errorf("the node was not heard of: %v", err)
	}
	say("shutdown", "alive")
	f.Eventually("what it says is read together", func() bool {
		said, complete, err := st.NodeEvents(f.Context(), "web1.example.net")
		types := map[provisioner.EventType]int{}
		for _, e := range said {
			types[e.Type]++
		}
		return err == nil && complete && types[provisioner.EventServerStartup] == 1 && types[provisioner.EventServerAlive] == 1 && types[provisioner.EventServerShutdown] == 1
	})
	for name, n := range f.Replicas() {
		if n != 3 {
			t.Errorf("%s is on %d servers", name, n)
		}
	}
	f.Check()
}
