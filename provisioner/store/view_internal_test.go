package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A note is an entry for tests.
type note struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

func (n *note) Check() error {
	if n.Text == "" {
		return errors.New("a note without a text")
	}
	return nil
}

const testStream = "NOTES"

// serve starts a nats-server for tests on a directory; port -1 is any.
func serve(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	options := &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		SyncAlways: true}
	return run(t, options)
}

func run(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	srv, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { stopServer(srv) })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv
}

func stopServer(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// dial connects as one process does.
func dial(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// makeStream makes the stream of notes.
func makeStream(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := retryUntilDone(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        testStream,
			Subjects:    []string{"note.>"},
			AllowDirect: true,
			Replicas:    replicas,
			RePublish:   &jetstream.RePublish{Source: "note.>", Destination: republishPrefix + testStream + ".>"},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// follower opens a process's follower with its view, not running yet.
func follower(t *testing.T, nc *nats.Conn, js jetstream.JetStream) (*Follower, *View[*note]) {
	t.Helper()
	f := newClient(js, Config{Conn: nc, Timeout: 10 * time.Second}).newFollower(testStream)
	v := addView(f, newView("note.", func(n *note) string { return n.Key }))
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, v
}

// running opens a follower and runs it until the test ends.
func running(t *testing.T, nc *nats.Conn, js jetstream.JetStream) (*Follower, *View[*note]) {
	t.Helper()
	f, v := follower(t, nc, js)
	go f.Run(t.Context())
	return f, v
}

// reported waits until the losses name what the follower misses.
func reported(t *testing.T, f *Follower, want error) {
	t.Helper()
	var err error
	eventually(t, "reported: "+want.Error(), func() bool {
		err = f.client.losses.check(t.Context())
		return errors.Is(err, want)
	})
	if f.Fresh() == nil {
		eventually(t, "not fresh", func() bool { return f.Fresh() != nil })
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, end := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func mustPut(t *testing.T, v *View[*note], key, text string, expected trust.Revision) trust.Revision {
	t.Helper()
	revision, err := v.Put(t.Context(), key, &note{key, text}, expected)
	if err != nil {
		t.Fatalf("Put(%s, %s, %d): %v", key, text, expected, err)
	}
	return revision
}

func text(v *View[*note], key string) string {
	e, found := v.Get(key)
	if !found || e.Value == nil {
		return ""
	}
	return e.Value.Text
}

// TestViewHoldsTheNewestEntryOfEachKey has two processes write. Each sees its own entry when Put returns, and the other
// process's entry at once.
func TestViewHoldsTheNewestEntryOfEachKey(t *testing.T) {
	t.Parallel()
	srv := serve(t, t.TempDir(), -1)
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	_, mine := running(t, nc, js)
	var seen []string
	mine.Watch(func(key string, e trust.Entry[*note]) { seen = append(seen, fmt.Sprint(key, e.Revision)) })
	first := mustPut(t, mine, "a", "one", 0)
	if text(mine, "a") != "one" {
		t.Error("an own write is not seen")
	}
	otherConn, otherJS := dial(t, srv.ClientURL())
	_, other := running(t, otherConn, otherJS)
	if text(other, "a") != "one" {
		t.Error("what was there before is not seen")
	}
	mustPut(t, other, "a", "two", first)
	eventually(t, "the other's write is seen", func() bool { return text(mine, "a") == "two" })
	mustPut(t, mine, "b", "three", 0)
	n := 0
	for range mine.All() {
		n++
	}
	if n != 2 || strings.Join(seen, " ") != "a1 a2 b3" {
		t.Errorf("%d entries, applied %v; want 2, each once", n, seen)
	}
}

// TestUndecodableEntryFailsClosed writes an invalid entry: its key is unreadable until a good one replaces it, and
// other keys are unchanged.
func TestUndecodableEntryFailsClosed(t *testing.T) {
	t.Parallel()
	srv := serve(t, t.TempDir(), -1)
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	f, v := running(t, nc, js)
	for key, data := range map[string]string{
		"unknown":  `{"key":"unknown","text":"x","more":1}`,
		"another":  `{"key":"b","text":"x"}`,
		"empty":    `{"key":"empty","text":""}`,
		"trailing": `{"key":"trailing","text":"x"} {}`,
		"no.json":  `{`,
	} {
		ack, err := js.Publish(t.Context(), "note."+key, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.catchUpTo(t.Context(), ack.Sequence); err != nil {
			t.Fatal(err)
		}
		e, found := v.Get(key)
		if !found || e.Value != nil || !errors.Is(e.Unread, trust.ErrUnread) {
			t.Errorf("%s: entry %+v, %v, want one that is unread", key, e, found)
		}
		mustPut(t, v, key, "said anew", e.Revision)
		if e, _ := v.Get(key); e.Unread != nil || e.Value.Text != "said anew" {
			t.Errorf("%s: entry %+v, want the new one", key, e)
		}
	}
	if _, err := v.Put(t.Context(), "a", &note{Key: "a"}, 0); err == nil {
		t.Error("an entry is written that could not be read")
	}
}

// TestConflictShowsTheFirstEntry writes on an old revision.
func TestConflictShowsTheFirstEntry(t *testing.T) {
	t.Parallel()
	srv := serve(t, t.TempDir(), -1)
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	_, mine := running(t, nc, js)
	otherConn, otherJS := dial(t, srv.ClientURL())
	_, other := follower(t, otherConn, otherJS)
	first := mustPut(t, mine, "a", "one", 0)
	mustPut(t, mine, "a", "two", first)
	for _, expected := range []trust.Revision{0, first, first + 7} {
		_, err := other.Put(t.Context(), "a", &note{"a", "late"}, expected)
		if !errors.Is(err, trust.ErrConflict) || text(other, "a") != "two" {
			t.Errorf("Put on %d: %v, and the entry is %q; want %v and the newest", expected, err, text(other, "a"),
				trust.ErrConflict)
		}
	}
}

// lossy is a JetStream that loses one publication, or its acknowledgement. before runs first.
type lossy struct {
	jetstream.JetStream
	sent   bool
	before func()
	done   bool
}

func (l *lossy) PublishMsgAsync(m *nats.Msg, options ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if l.done {
		return l.JetStream.PublishMsgAsync(m, options...)
	}
	l.done = true
	if l.before != nil {
		l.before()
	}
	if l.sent {
		f, err := l.JetStream.PublishMsgAsync(m, options...)
		if err != nil {
			return nil, err
		}
		select {
		case <-f.Ok():
		case <-f.Err():
		}
	}
	return nil, context.DeadlineExceeded
}

// TestLostAcknowledgement loses the request of a write, or its answer: the entry is written once, or another entry came
// first, which is a conflict.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	srv := serve(t, t.TempDir(), -1)
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	_, other := running(t, nc, js)
	for name, tt := range map[string]struct {
		sent, theirs bool
		want         error
	}{
		"request-lost":      {},
		"answer-lost":       {sent: true},
		"another-was-first": {theirs: true, want: trust.ErrConflict},
		"and-answer-lost":   {sent: true, theirs: true, want: trust.ErrConflict},
	} {
		l := &lossy{JetStream: js, sent: tt.sent}
		if tt.theirs {
			l.before = func() { mustPut(t, other, name, "theirs", 0) }
		}
		_, v := running(t, nc, l)
		if _, err := v.Put(t.Context(), name, &note{name, "mine"}, 0); !errors.Is(err, tt.want) {
			t.Errorf("%s: Put = %v, want %v", name, err, tt.want)
		}
		want := "mine"
		if tt.theirs {
			want = "theirs"
		}
		if text(v, name) != want {
			t.Errorf("%s: entry %q, want %q", name, text(v, name), want)
		}
		stream, err := js.Stream(t.Context(), testStream)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("note."+name)); err != nil ||
			info.State.Subjects["note."+name] != 1 {
			t.Errorf("%s: written %d times, %v; want once", name, info.State.Subjects["note."+name], err)
		}
	}
}

// TestGapIsFilled withholds republished messages: the position waits until the next check has read them, in batches.
func TestGapIsFilled(t *testing.T) {
	t.Parallel()
	srv := serve(t, t.TempDir(), -1)
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	f, v := follower(t, nc, js)
	at := f.position
	gap := &nats.Msg{Header: nats.Header{}, Data: []byte(`{"key":"z","text":"after the gap"}`)}
	gap.Header.Set(jetstream.SequenceHeader, fmt.Sprint(at+9000))
	gap.Header.Set(jetstream.SubjectHeader, "note.z")
	f.onRepublished(gap)
	if f.position != at || text(v, "z") != "" || len(f.gap) != 1 {
		t.Errorf("position %d, entry %q, kicked %d: want %d, no entry, and a check", f.position, text(v, "z"),
			len(f.gap), at)
	}
	for i := range 2*fetchMessages + 3 {
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: fmt.Sprintf("note.k%d", i),
			Data: fmt.Appendf(nil, `{"key":"k%d","text":"x"}`, i)}); err != nil {
			t.Fatal(err)
		}
		if i%2000 == 0 {
			<-js.PublishAsyncComplete()
		}
	}
	<-js.PublishAsyncComplete()
	fresh := newClient(js, Config{Conn: nc, Timeout: time.Second}).newFollower(testStream)
	all := addView(fresh, newView("note.", func(n *note) string { return n.Key }))
	eventually(t, "all is read, in as many checks as it takes", func() bool { return fresh.check(t.Context()) == nil })
	if text(all, "k0") == "" || text(all, fmt.Sprintf("k%d", 2*fetchMessages+2)) == "" ||
		fresh.position != 2*fetchMessages+3 {
		t.Errorf("read to %d, want all", fresh.position)
	}
}

// TestStreamThatIsDeletedOrMadeAnewIsReported deletes the stream under a follower.
func TestStreamThatIsDeletedOrMadeAnewIsReported(t *testing.T) {
	t.Parallel()
	for _, anew := range []bool{false, true} {
		srv := serve(t, t.TempDir(), -1)
		nc, js := dial(t, srv.ClientURL())
		makeStream(t, js, 1)
		f, v := running(t, nc, js)
		mustPut(t, v, "a", "one", 0)
		f.mu.Lock() // no check falls between
		err := js.DeleteStream(t.Context(), testStream)
		if anew {
			makeStream(t, js, 1)
		}
		f.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		reported(t, f, ErrStreamGone)
		if err := f.lost(t.Context()); anew && !strings.Contains(err.Error(), "made anew") {
			t.Errorf("lost: %v", err)
		}
	}
}

// TestRestartOfTheServer stops the server: views age, and are fresh again with nothing lost. An older copy of the disk
// is reported.
func TestRestartOfTheServer(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), t.TempDir()
	srv := serve(t, dir, -1)
	port := srv.Addr().(*net.TCPAddr).Port
	nc, js := dial(t, srv.ClientURL())
	makeStream(t, js, 1)
	f, v := running(t, nc, js)
	mustPut(t, v, "a", "one", 0)
	stopServer(srv)
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the view is too old", func() bool { return errors.Is(f.Fresh(), trust.ErrRevocationsUnknown) })
	if _, err := v.Put(t.Context(), "b", &note{"b", "two"}, 0); !errors.Is(err, errDisconnected) {
		t.Errorf("Put without a server = %v, want %v", err, errDisconnected)
	}
	srv = serve(t, dir, port)
	eventually(t, "the view is fresh", func() bool { return f.Fresh() == nil })
	mustPut(t, v, "b", "two", 0)
	mustPut(t, v, "c", "three", 0)
	stopServer(srv)
	if err := f.client.losses.check(t.Context()); err != nil {
		t.Fatalf("lost by a restart: %v", err)
	}
	serve(t, old, port)
	reported(t, f, ErrStreamShorter)
}

// TestNotFreshWithoutAMajority stops two of three servers: the last one goes on answering, and its views age within
// seconds, until there is a majority again.
func TestNotFreshWithoutAMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster of three")
	}
	t.Parallel()
	servers, options := cluster(t)
	nc, js := dial(t, servers[0].ClientURL())
	makeStream(t, js, 3)
	f, v := running(t, nc, js)
	mustPut(t, v, "a", "one", 0)
	eventually(t, "the view is fresh", func() bool { return f.Fresh() == nil })
	stopServer(servers[1])
	stopServer(servers[2])
	began := time.Now()
	eventually(t, "the view is not fresh", func() bool { return f.Fresh() != nil })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the view counted as fresh for %v without a majority", took)
	}
	run(t, options[1])
	eventually(t, "the view is fresh with a majority", func() bool { return f.Fresh() == nil })
	mustPut(t, v, "b", "two", 0)
	otherConn, otherJS := dial(t, servers[0].ClientURL())
	if _, other := follower(t, otherConn, otherJS); text(other, "a") != "one" || text(other, "b") != "two" {
		t.Errorf("entries %q and %q, want both", text(other, "a"), text(other, "b"))
	}
}

// cluster starts three servers, and returns how each is started again.
func cluster(t *testing.T) (servers []*server.Server, options []*server.Options) {
	t.Helper()
	routes, dirs := "", []string{}
	for i := range 3 {
		dirs = append(dirs, t.TempDir())
		o := &server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1,
			JetStream: true, StoreDir: dirs[i], NoSigs: true, NoLog: true, SyncAlways: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: -1},
			Routes:  server.RoutesFromStr(routes),
		}
		srv := run(t, o)
		if i == 0 {
			routes = "nats://" + srv.ClusterAddr().String()
		}
		again := *o
		again.Port, again.Cluster.Port = srv.Addr().(*net.TCPAddr).Port, srv.ClusterAddr().Port
		servers, options = append(servers, srv), append(options, &again)
	}
	return servers, options
}
