package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
)

// lived is an event of a node's own, of so many bytes and a few more.
func lived(kind string, padding int) []byte {
	return fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"x","type":"io.muster.server.%s","time":"2026-03-01T12:00:00Z","data":{"version":"1","said":%q}}`,
		kind, strings.Repeat("x", padding))
}

// said publishes an event of a node's own.
func (s *site) said(t *testing.T, id wire.Identity, kind string, padding int) {
	t.Helper()
	if err := s.conn.Publish(wire.EventSubject(id, kind), lived(kind, padding)); err != nil {
		t.Fatal(err)
	}
}

// lives returns the types of what a node has said itself, once the last is among them.
func (s *site) lives(t *testing.T, st *store.Store, id wire.Identity, last provisioner.EventType) (types []provisioner.EventType, complete bool) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		events, complete, err := st.NodeEvents(s.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		types = types[:0]
		for _, e := range events {
			types = append(types, e.Type)
		}
		if slices.Contains(types, last) {
			return types, complete
		}
	}
}

// TestANodeTakesNoRoomFromOthers has a node of the fleet say as much as it can.
func TestANodeTakesNoRoomFromOthers(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	const each = 2 * store.MaxNodeEvents
	for i := range each {
		for _, kind := range wire.EventTypes {
			s.said(t, web1, kind, 3<<10)
			if i%50 == 0 {
				s.said(t, web1, kind, 4<<10) // larger than what is kept of anybody
			}
		}
	}
	s.said(t, web2, "shutdown", 0)
	s.lives(t, st, web2, "io.muster.server.shutdown") // it came last
	stream, err := s.js.Stream(s.ctx, "MUSTER_LIFECYCLE")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(s.ctx, jetstream.WithSubjectFilter(wire.EventSubject(web1, "*")))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.State.Subjects) != len(wire.EventTypes) {
		t.Errorf("the node has subjects %v, want one for each of %v", info.State.Subjects, wire.EventTypes)
	}
	for subject, n := range info.State.Subjects {
		if n != store.MaxNodeEvents+1 {
			t.Errorf("%d events on %s, want %d", n, subject, store.MaxNodeEvents+1)
		}
		if m, err := stream.GetLastMsgForSubject(s.ctx, subject); err != nil || len(m.Data) > 4<<10 {
			t.Errorf("the last event on %s: %v, %v", subject, m, err)
		}
	}
	if limit := uint64(info.Config.MaxBytes) / 50; info.State.Bytes > limit {
		t.Errorf("one node has %d bytes of %d, want %d at most", info.State.Bytes, info.Config.MaxBytes, limit)
	}
	types, complete := s.lives(t, st, web1, "io.muster.server.alive")
	if n := len(types); complete || n != 3*store.MaxNodeEvents+1 {
		t.Errorf("of the node %d events are read, all of them: %v; want %d and not all", n, complete, 3*store.MaxNodeEvents+1)
	}
	events, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := events.CachedInfo().State.LastSeq; n != 0 {
		t.Errorf("%d events are where the provisioners' are", n)
	}
}

// TestAStoreFromBeforeNodesHadAStream opens one in which what nodes say is among the
// provisioners' events, with a webhook that waits for it: that goes on, and what is
// there is still read.
func TestAStoreFromBeforeNodesHadAStream(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	_, err := s.js.CreateStream(s.ctx, jetstream.StreamConfig{Name: "MUSTER_EVENTS", Subjects: []string{"muster.event.>", wire.AllNodeEvents}, MaxBytes: 1 << 30,
		Replicas: 1, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode, NoAck: true})
	if err != nil {
		t.Fatal(err)
	}
	hook := provisioner.Subscription{Name: "webhook-lives", Types: []provisioner.EventType{"io.muster.server.startup", provisioner.EventRefused},
		AtOnce: 1, Hold: time.Minute, Forget: time.Hour}
	_, err = s.js.CreateConsumer(s.ctx, "MUSTER_EVENTS", jetstream.ConsumerConfig{Durable: hook.Name, DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: hook.Hold, InactiveThreshold: hook.Forget, MaxDeliver: -1, MaxAckPending: 256, FilterSubjects: []string{"muster.event.node.refused.*", "muster.v1.event.*.startup"}})
	if err != nil {
		t.Fatal(err)
	}
	s.said(t, web1, "startup", 0)
	if err := s.conn.FlushWithContext(s.ctx); err != nil {
		t.Fatal(err)
	}

	st := open(t, s)
	f := subscribedTo(t, st, hook, settled)
	placedIn(t, s, hook, "MUSTER_EVENTS", "MUSTER_LIFECYCLE")
	s.said(t, web2, "startup", 0)
	st.Emit(provisioner.Event{Type: provisioner.EventRefused, Time: time.Now(), Node: string(web2), Code: wire.CodeDenied})
	want := map[provisioner.EventType]bool{"io.muster.server.startup": true, provisioner.EventRefused: true}
	for range want {
		if d := f.next(t); d.Event.Subject != string(web2) || !want[d.Event.Type] {
			t.Errorf("delivered %s of %s", d.Event.Type, d.Event.Subject)
		}
	}
	var got []string
	err = st.Events(s.ctx, provisioner.EventQuery{After: &provisioner.Place{}, Type: provisioner.EventOfServer, Once: true}, func(e *provisioner.StoredEvent) error {
		got = append(got, fmt.Sprint(e.Subject, " ", e.Place))
		return nil
	})
	if want := []string{"web1.example.net 1-0-0", "web2.example.net 1-0-1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the log has %q, %v; want %q", got, err, want)
	}
}
