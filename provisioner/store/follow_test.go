package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

// TestFollowRecords follows present and new records; a second follower sees the same.
func TestFollowRecords(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	empty := follow(t, st)
	empty.wait(t, "an empty store is current at once", func() bool { return empty.currents > 0 })
	revision, err := st.Put(s.ctx, enrolled(web1), 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := st.Put(s.ctx, enrolled(web1), revision)
	if err != nil {
		t.Fatal(err)
	}
	late := follow(t, st)
	late.wait(t, "what is there comes", func() bool { return late.currents > 0 })
	late.look(func() {
		if late.newest[web1] != second || late.calls != 1 {
			t.Errorf("%d records, the newest of %s at %d, want the one at %d", late.calls, web1, late.newest[web1],
				second)
		}
	})
	third, err := st.Put(s.ctx, enrolled(web2), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*followed{empty, late} {
		f.wait(t, "what is written comes", func() bool { return f.newest[web1] == second && f.newest[web2] == third })
	}
}

// followed collects the calls of a follower.
type followed struct {
	mu       sync.Mutex
	newest   map[wire.Identity]trust.Revision // guarded by mu
	calls    int                              // guarded by mu
	own      int                              // guarded by mu: of calls
	currents int                              // guarded by mu
	changed  chan struct{}
}

// follow follows the records until the test ends.
func follow(t *testing.T, st *store.Store) *followed {
	t.Helper()
	f := &followed{newest: make(map[wire.Identity]trust.Revision), changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	change := func(do func()) {
		f.look(do)
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	go func() {
		come := func(id wire.Identity, at trust.Revision) {
			change(func() { f.newest[id], f.calls = max(f.newest[id], at), f.calls+1 })
		}
		ended <- st.FollowRecords(ctx, func(id wire.Identity, _ []byte, at trust.Revision) { come(id, at) },
			func(r *provisioner.Brief, at trust.Revision) {
				f.look(func() { f.own++ })
				come(r.Identity, at)
			}, func(err error) {
				if err == nil {
					change(func() { f.currents++ })
				}
			})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	return f
}

func (f *followed) look(at func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at()
}

func (f *followed) wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		ok := false
		f.look(func() { ok = condition() })
		if ok {
			return
		}
		select {
		case <-f.changed:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestNodeEvents reads one node's events: more of one type than are read, few of another, and the node's own.
func TestNodeEvents(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	if emitted, complete, err := st.NodeEvents(s.ctx, web1); err != nil || !complete || len(emitted) != 0 {
		t.Errorf("nothing said: %v, %v, %v", emitted, complete, err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const refused = 20 * store.MaxNodeEvents
	for i := range refused {
		for _, id := range []wire.Identity{web1, web2} {
			st.Emit(events.Event{Type: events.Refused, Time: at.Add(time.Duration(i) * time.Second), Node: string(id),
				Code: wire.CodeDenied, Cause: fmt.Sprint(id, i)})
		}
	}
	st.Emit(events.Event{Type: events.Attempt, Time: at, Node: string(web1), Code: wire.CodeTokenInvalid})
	alive := []byte(`{"specversion":"1.0","type":"io.muster.node.revoked","time":"2001-01-01T00:00:00Z",` +
		`"data":{"serial":"5b1f","node":"web2.example.net","by":"me"}}`)
	for range 3 {
		if err := s.conn.PublishMsg(&nats.Msg{Subject: wire.EventSubject(web1, "alive"), Data: alive}); err != nil {
			t.Fatal(err)
		}
	}
	last := events.Event{Type: events.Granted, Time: at.Add(2 * time.Hour), Node: string(web1), By: "me", Why: "disk",
		Attempt: "g"}
	s.emitted(t, st, last)
	emitted, complete, err := st.NodeEvents(s.ctx, web1)
	if err != nil || complete {
		t.Fatalf("complete %v, %v", complete, err)
	}
	count := make(map[events.Type]int)
	for i, e := range emitted {
		count[e.Type]++
		if e.Node != string(web1) || i > 0 && e.Time.Before(emitted[i-1].Time) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	want := map[events.Type]int{
		events.Refused: store.MaxNodeEvents, events.Attempt: 1, events.Granted: 1, "io.muster.server.alive": 1,
	}
	if fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", count, want)
	}
	// Of a node's own event only the certificate is taken; the time is the broker's. All else is as emitted.
	heard := emitted[len(emitted)-1]
	if heard.Type != "io.muster.server.alive" || heard.Serial != "5b1f" || heard.By != "" ||
		time.Since(heard.Time).Abs() > time.Hour {
		t.Errorf("alive: %+v", heard)
	}
	if e := emitted[len(emitted)-2]; e != last {
		t.Errorf("granted: %+v, want %+v", e, last)
	}
	// The broker's number of consumers is limited.
	for _, name := range []string{"MUSTER_EVENTS", "MUSTER_ATTEMPTS", "MUSTER_LIFECYCLE", "MUSTER_ALIVE"} {
		stream, err := s.js.Stream(s.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%d consumers of %s are left", n, name)
		}
	}
	if e := emitted[len(emitted)-3]; e.Cause != fmt.Sprint(web1, refused-1) {
		t.Errorf("the newest refusal is %+v", e)
	}
}

// lines counts log lines.
type lines struct{ n atomic.Int64 }

func (*lines) Enabled(context.Context, slog.Level) bool    { return true }
func (l *lines) Handle(context.Context, slog.Record) error { l.n.Add(1); return nil }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l *lines) WithGroup(string) slog.Handler             { return l }

// TestPersistentErrorIsLoggedOnce deletes the followed streams for four checks each.
func TestPersistentErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	log := &lines{}
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, Log: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	before := log.n.Load()
	records, seen := make(chan *nats.Msg, 100), make(chan *nats.Msg, 100)
	_, err = s.conn.ChanSubscribe("$JS.API.STREAM.INFO.MUSTER_NODES", records)
	_, err2 := s.conn.ChanSubscribe("$JS.API.STREAM.INFO.MUSTER_ALIVE", seen)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	f := follow(t, st)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	current, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- st.FollowLastSeen(ctx, func(wire.Identity, time.Time) {}, func(time.Time) { close(current) })
	}()
	f.wait(t, "it is current", func() bool { return f.currents > 0 })
	<-current
	if err := errors.Join(s.js.DeleteStream(s.ctx, "MUSTER_NODES"),
		s.js.DeleteStream(s.ctx, "MUSTER_ALIVE")); err != nil {
		t.Fatal(err)
	}
	for n := range 8 {
		tries := records
		if n%2 == 0 {
			tries = seen
		}
		select {
		case <-tries:
		case <-s.ctx.Done():
			t.Fatalf("%d tries", n)
		}
	}
	if n := log.n.Load() - before; n < 2 || n > 6 { // for each: deleted, and missing
		t.Errorf("%d lines are logged, want 2 to 6", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
