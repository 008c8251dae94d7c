package natsapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// aims are subjects of the provisioners' account that no client may reach.
var aims = []string{
	"muster.node.web1_example_net",
	"muster.node.evil_example_net",
	"muster.entry.installation",
	"muster.entry.grant.evil_example_net",
	"muster.event.node.enrolled.web1_example_net",
	"muster.v1.command.web1_example_net",
	"$JS.API.STREAM.PURGE.MUSTER_NODES",
	"$JS.API.STREAM.DELETE.MUSTER_EVENTS",
	"$JS.API.INFO",
	"$SYS.REQ.SERVER.PING",
	"_INBOX.provisioner",
}

// TestReplySubjectsDoNotReachTheProvisionersAccount has a token thief and a node name reply subjects of the
// provisioners' account: in requests, in confirmations, and in events, which JetStream would acknowledge.
func TestReplySubjectsDoNotReachTheProvisionersAccount(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	thief := f.Dial(n.Token)
	node, err := n.DialFleet(f.URL(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	confirmation, err := n.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	renewal, err := n.Renewal(n)
	if err != nil {
		t.Fatal(err)
	}
	evil := f.Node("evil.example.net")
	evil.CSR = nil // refused whatever it says, so that there is never a record
	messages := map[string]struct {
		conn    *nats.Conn
		subject string
		body    any
	}{
		"a thief's request":       {thief, wire.SubjectEnroll, evil.Request()},
		"a thief's confirmation":  {thief, wire.SubjectApplied, confirmation},
		"a node's confirmation":   {node, wire.SubjectApplied, confirmation},
		"a node's renewal":        {node, wire.SubjectRenew, renewal},
		"a node's event":          {node, wire.EventSubject("web1.example.net", "startup"), confirmation},
		"a node's registration":   {node, wire.RegistrationSubject("web1.example.net"), confirmation},
		"a thief's empty request": {thief, wire.SubjectEnroll, struct{}{}},
	}
	conn, err := f.Daemon().Connect("witness")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	var seen []*nats.Subscription
	for _, aim := range aims {
		s, err := conn.SubscribeSync(aim)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, s)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for name, m := range messages {
		b, err := wire.Encode(m.body)
		if err != nil {
			t.Fatal(err)
		}
		for _, aim := range aims {
			if err := m.conn.PublishRequest(m.subject, aim, b); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	// What comes after them on the same connections is answered after them.
	f.Enroll(f.Node("web2.example.net"))
	for name, c := range map[string]*nats.Conn{"thief": thief, "node": node} {
		if _, err := simnode.Apply(f.Context(), c, confirmation); err != nil {
			t.Fatalf("the %s's connection is of no use any more: %v", name, err)
		}
	}
	// Of the node's events the server itself refuses those that aim at JetStream's interface.
	last := wire.EventSubject("web1.example.net", "shutdown")
	if err := node.Publish(last, nil); err != nil {
		t.Fatal(err)
	}
	f.Eventually("what the node said last is stored", func() bool { return eventSubjects(t, f, last)[last] == 1 })
	want := uint64(0)
	for _, aim := range aims {
		if !strings.HasPrefix(aim, "$JS.") {
			want++
		}
	}
	startup := wire.EventSubject("web1.example.net", "startup")
	if n := eventSubjects(t, f, startup)[startup]; n != want {
		t.Errorf("%d of %d events of the node are stored, want %d", n, len(aims), want)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, s := range seen {
		if m, err := s.NextMsg(0); err == nil {
			t.Errorf("somebody had this sent to %s: %s", aims[i], m.Data)
		}
	}
	if r := f.Record("evil.example.net"); r != nil {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

// TestRepliesSentToRequestSubjectsAreNotAnswered names request subjects as reply subjects. Each reply arrives there
// once and is not answered.
func TestRepliesSentToRequestSubjectsAreNotAnswered(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	node, err := n.DialFleet(f.URL(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	thief := f.Dial(n.Token)
	before := len(f.Events())
	const times = 20
	for range times {
		for _, aim := range []string{wire.SubjectEnroll, wire.SubjectApplied, wire.SubjectRenew} {
			if err := node.PublishRequest(wire.SubjectRenew, aim, []byte("loop")); err != nil {
				t.Fatal(err)
			}
			for _, c := range []*nats.Conn{thief, node} {
				if err := c.PublishRequest(wire.SubjectApplied, aim, []byte("loop")); err != nil {
					t.Fatal(err)
				}
			}
			if err := thief.PublishRequest(wire.SubjectEnroll, aim, []byte("loop")); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func() (n int64) {
		for _, e := range f.Events()[before:] {
			if e.Type == events.Attempt {
				n += 1 + e.LeftOut
			}
		}
		return n
	}
	const sent = 12 * times
	more := int64(0)
	f.Eventually("all are refused", func() bool {
		// What is left out of the reports is said by a later one.
		f.Clock.Advance(10 * time.Second)
		if _, err := thief.RequestWithContext(f.Context(), wire.SubjectEnroll, []byte("and?")); err != nil {
			t.Fatal(err)
		}
		more++
		return count() >= sent+more
	})
	for _, c := range []*nats.Conn{thief, node} {
		if reply, err := simnode.Apply(f.Context(), c, confirm(t, n, e)); err != nil || reply.Applied == nil {
			t.Fatalf("a confirmation afterwards: %+v, %v", reply, err)
		}
	}
	if got := count(); got > sent+more {
		t.Errorf("%d messages were worked on, want the %d that were sent", got, sent+more)
	}
	f.Check()
}

// confirm returns a node's confirmation.
func confirm(t *testing.T, n *simnode.Node, e *wire.Enrolled) *wire.Applied {
	t.Helper()
	a, err := n.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
