package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

// lived is a node's own event, of that many bytes and a few more.
func lived(kind string, padding int) []byte {
	return fmt.Appendf(nil,
		`{"specversion":"1.0","id":"1","source":"x","type":"io.muster.server.%s","time":"2026-03-01T12:00:00Z",`+
			`"data":{"version":"1","said":%q}}`,
		kind, strings.Repeat("x", padding))
}

// said publishes a node's own event.
func (s *site) said(t *testing.T, id wire.Identity, kind string, padding int) {
	t.Helper()
	if err := s.conn.Publish(wire.EventSubject(id, kind), lived(kind, padding)); err != nil {
		t.Fatal(err)
	}
}

// lives returns the types of a node's own events, once the last is among them.
func (s *site) lives(t *testing.T, st *store.Store, id wire.Identity, last events.Type,
) (types []events.Type, complete bool) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		emitted, complete, err := st.NodeEvents(s.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		types = types[:0]
		for _, e := range emitted {
			types = append(types, e.Type)
		}
		if slices.Contains(types, last) {
			return types, complete
		}
	}
}

// TestNodeCannotDisplaceOtherNodesEvents has a node publish as much as it can.
func TestNodeCannotDisplaceOtherNodesEvents(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	const each = 2 * store.MaxNodeEvents
	for i := range each {
		for _, kind := range wire.EventTypes {
			s.said(t, web1, kind, 3<<10)
			if i%50 == 0 {
				s.said(t, web1, kind, 4<<10) // larger than the limit
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
	if len(info.State.Subjects) != len(wire.EventTypes)-1 {
		t.Errorf("the node has subjects %v, want one for each of %v but for alive", info.State.Subjects,
			wire.EventTypes)
	}
	if last, err := s.js.Stream(s.ctx, "MUSTER_ALIVE"); err != nil || last.CachedInfo().State.Msgs != 1 {
		t.Errorf("of the node being alive there is not the one last message: %v, %v", last, err)
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
		t.Errorf("of the node %d events are read, all of them: %v; want %d and not all", n, complete,
			3*store.MaxNodeEvents+1)
	}
	emitted, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if n := emitted.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d events are where the provisioners' are", n)
	}
}

// TestEventIDsOfNodesAreNotRemembered publishes events of two nodes with the same id. A broker that remembers ids would
// drop the second, and keep kilobytes per event in memory.
func TestEventIDsOfNodesAreNotRemembered(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for _, kind := range []string{"startup", "alive"} {
		for _, id := range []wire.Identity{web1, web2} {
			for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
				m := nats.NewMsg(wire.EventSubject(id, kind))
				m.Header.Set(jetstream.MsgIDHeader, "mine")
				m.Data = lived(kind, 0)
				if err := s.conn.PublishMsg(m); err != nil {
					t.Fatal(err)
				}
				emitted, _, err := st.NodeEvents(s.ctx, id)
				if err != nil {
					t.Fatalf("%s of %s is not heard: %v", kind, id, err)
				}
				if slices.ContainsFunc(emitted,
					func(e events.Event) bool { return e.Type == events.Type("io.muster.server."+kind) }) {
					break
				}
			}
		}
	}
}

// heard returns the last times of nodes, and the start of the stored times.
func (s *site) heard(t *testing.T, st *store.Store) ([]wire.Identity, time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var mu sync.Mutex
	seen := map[wire.Identity]time.Time{} // guarded by mu
	var since time.Time
	err := st.FollowLastSeen(ctx, func(id wire.Identity, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		seen[id] = at
	}, func(at time.Time) { since = at; cancel() })
	if err != nil || since.IsZero() {
		t.Fatalf("FollowSeen = %v, heard of since %v", err, since)
	}
	return slices.Sorted(maps.Keys(seen)), since
}

// TestLastSeenSurvivesManyEvents publishes more events than there is room for: each node's last one stays, and starts
// are not displaced by signs of life.
func TestLastSeenSurvivesManyEvents(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	// a quarter of a MiB for lifecycles
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, Capacity: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []wire.Identity
	for i := range 100 {
		nodes = append(nodes, wire.Identity(fmt.Sprintf("n%02d.example.net", i)))
		s.said(t, nodes[i], "startup", 0)
	}
	for range 20 {
		for _, id := range nodes {
			s.said(t, id, "alive", 1000)
		}
	}
	s.said(t, web1, "shutdown", 0)
	s.lives(t, st, web1, "io.muster.server.shutdown") // it came last
	heard, since := s.heard(t, st)
	if want := append(slices.Clone(nodes), web1); !slices.Equal(heard, want) {
		t.Errorf("heard of %q, want %d nodes", heard, len(want))
	}
	if stream, err := s.js.Stream(s.ctx, "MUSTER_ALIVE"); err != nil || !since.Equal(stream.CachedInfo().Created) {
		t.Errorf("since %v, %v; want since there is the stream", since, err)
	}
	if types, complete := s.lives(t, st, nodes[0], "io.muster.server.startup"); !complete || len(types) != 2 {
		t.Errorf("the first node has said %q, all of it: %v", types, complete)
	}
}
