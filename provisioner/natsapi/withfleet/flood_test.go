package natsapi_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// eventSubjects returns the matching subjects of the event stream, with the number of events under each.
func eventSubjects(t *testing.T, f *testbed.Fleet, filter string) map[string]uint64 {
	t.Helper()
	conn, err := f.Daemon().Connect("witness")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("MUSTER_LIFECYCLE", &nats.StreamInfoRequest{SubjectsFilter: filter})
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects
}

// TestNodesCannotInventEventSubjects publishes events of unknown types from a node. The broker must not store them:
// it keeps each subject in memory while it has an event, 200 bytes of which the stream counts 72.
func TestNodesCannotInventEventSubjects(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("hostile.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	last := wire.EventSubject("hostile.example.net", "shutdown")
	for some := range 2 { // with 65 it would be dropped, and what is on its way lost
		node := f.DialFleet(n, e)
		for i := range 50 {
			if err := node.Publish(wire.EventSubject("hostile.example.net", fmt.Sprintf("made-up-%d-%d", some, i)), nil); err != nil {
				t.Fatal(err)
			}
		}
		// What comes after it on the same connection is there after it.
		if err := node.Publish(last, nil); err != nil {
			t.Fatal(err)
		}
		if err := node.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	f.Eventually("what came last is stored", func() bool { return eventSubjects(t, f, last)[last] == 2 })
	if n := len(eventSubjects(t, f, wire.AllNodeEvents)); n != 1 {
		t.Errorf("the node has made %d subjects, want the 1 of a type that there is", n)
	}
}
