package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

const (
	web1 wire.Identity = "web1.example.net"
	web2 wire.Identity = "web2.example.net"
	ours               = "0f1e2d" // fingerprint of the authority
)

func record(id wire.Identity, attempt string) *provisioner.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &provisioner.Record{
		Schema: provisioner.RecordSchema, Identity: id, State: provisioner.StateEnrolled, Attempt: attempt,
		Lineage: []string{"k1"},
		Next: &provisioner.Issued{Serial: "5b1f", KeyHash: "k1", DER: []byte{1, 2}, NotBefore: at,
			NotAfter: at.Add(time.Hour), Digest: "d", OfferedAt: at},
		FirstEnrolledAt: at, UpdatedAt: at,
	}
}

func put(t *testing.T, s *site, st *store.Store, r *provisioner.Record, after trust.Revision) trust.Revision {
	t.Helper()
	revision, err := st.Put(s.ctx, r, after)
	if err != nil {
		t.Fatalf("Put(%s, %s after %d): %v", r.Identity, r.Attempt, after, err)
	}
	return revision
}

func TestRecordIsReadAsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, stop := start(t, dir)
	st := s.open(t, ours)
	if r, revision, err := st.Record(s.ctx, web1); r != nil || revision != 0 || err != nil {
		t.Fatalf("a record that is not there: %v, %d, %v", r, revision, err)
	}
	want := record(web1, "a1")
	first := put(t, s, st, want, 0)
	other := put(t, s, st, record(web2, "b1"), 0)
	if first == 0 || other <= first {
		t.Errorf("revisions %d and %d, want one after the other", first, other)
	}
	check := func(st *store.Store, s *site) {
		t.Helper()
		got, revision, err := st.Record(s.ctx, web1)
		if err != nil || revision != first {
			t.Fatalf("Record = revision %d, %v, want %d", revision, err, first)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record (-written +read):\n%s", diff)
		}
	}
	check(st, s)
	want = record(web1, "a2")
	want.State, want.Current, want.Next = provisioner.StateProvisioned, want.Next, nil
	first = put(t, s, st, want, first)
	check(st, s)
	// And by another process, on the same disk.
	id := st.Installation().ID
	stop()
	s, _ = start(t, dir)
	st = s.open(t, ours)
	check(st, s)
	if st.Installation().ID != id || id == "" {
		t.Errorf("installation %q after a restart, want %q", st.Installation().ID, id)
	}
}

// TestCompareAndSet writes on every revision but the newest: all are conflicts, and nothing is written.
func TestCompareAndSet(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	first := put(t, s, st, record(web1, "a1"), 0)
	other := put(t, s, st, record(web2, "b1"), 0)
	second := put(t, s, st, record(web1, "a2"), first)
	tests := map[string]struct {
		id    wire.Identity
		after trust.Revision
	}{
		"as if there were none":        {web1, 0},
		"on an earlier one":            {web1, first},
		"on another identity's":        {web1, other},
		"on one from the future":       {web1, second + 1},
		"on one though there is none":  {"db1.example.net", second},
		"on ours, for another":         {web2, second},
		"as if there were none, again": {web2, 0},
	}
	for name, tt := range tests {
		if revision, err := st.Put(s.ctx, record(tt.id, "late"), tt.after); !errors.Is(err, trust.ErrConflict) ||
			revision != 0 {
			t.Errorf("%s: Put = %d, %v, want %v", name, revision, err, trust.ErrConflict)
		}
	}
	for id, want := range map[wire.Identity]trust.Revision{web1: second, web2: other, "db1.example.net": 0} {
		if r, revision, err := st.Record(s.ctx, id); revision != want || err != nil || r != nil && r.Attempt == "late" {
			t.Errorf("record of %s is %v at %d, %v, want revision %d", id, r, revision, err, want)
		}
	}
}

// TestOneOfManyWritersWins has many writers decide on the same revision.
func TestOneOfManyWritersWins(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	after := trust.Revision(0)
	for round := range 5 {
		var writers sync.WaitGroup
		won := make(chan string, 16)
		for i := range cap(won) {
			attempt := fmt.Sprintf("%d-%d", round, i)
			writers.Go(func() {
				_, err := st.Put(s.ctx, record(web1, attempt), after)
				switch {
				case err == nil:
					won <- attempt
				case !errors.Is(err, trust.ErrConflict):
					t.Errorf("Put: %v", err)
				}
			})
		}
		writers.Wait()
		r, revision, err := st.Record(s.ctx, web1)
		if err != nil || len(won) != 1 || <-won != r.Attempt {
			t.Fatalf("round %d: %d more writers won, record %v, %v", round, len(won), r, err)
		}
		after = revision
	}
}

// TestUnacknowledgedWriteIsAnError expects neither success nor a conflict for an unknown outcome.
func TestUnacknowledgedWriteIsAnError(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	gone, cancel := context.WithCancel(s.ctx)
	cancel()
	for range 20 { // an acknowledgement may be quicker
		_, after, err := st.Record(s.ctx, web1)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := st.Put(gone, record(web1, "a1"), after)
		if err == nil {
			if _, newest, err := st.Record(s.ctx, web1); err != nil || newest != revision {
				t.Fatalf("acknowledged as %d, and the newest is %d, %v", revision, newest, err)
			}
			continue
		}
		// The write may come between our reading and our writing.
		if !errors.Is(err, context.Canceled) && !errors.Is(err, trust.ErrConflict) {
			t.Errorf("Put = %v, want %v", err, context.Canceled)
		}
	}
	if _, _, err := st.Record(gone, web1); !errors.Is(err, context.Canceled) {
		t.Errorf("Record = %v, want %v", err, context.Canceled)
	}
	s.conn.Close()
	if _, err := st.Put(s.ctx, record(web2, "b1"), 0); err == nil || errors.Is(err, trust.ErrConflict) {
		t.Errorf("Put on a closed connection = %v", err)
	}
	if r, _, err := st.Record(s.ctx, web2); err == nil {
		t.Errorf("Record on a closed connection = %v", r)
	}
}

// TestLostAcknowledgementsFreeTheirSlots cancels writers whose writes are never acknowledged: their slots must become
// free.
func TestLostAcknowledgementsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	_, s := newStore(t)
	st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_CLAIMS")
	if err != nil {
		t.Fatal(err)
	}
	silent := stream.CachedInfo().Config
	silent.NoAck = true
	if _, err := s.js.UpdateStream(s.ctx, silent); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(s.ctx)
	cancel()
	entry := &trust.ClaimEntry{Schema: trust.ClaimSchema,
		Claims: []trust.TokenClaim{{Key: "k", Identity: web1, Attempt: "a1", At: time.Now()}}}
	for i := range 5 {
		if _, err := st.AppendClaims(gone, jwt.TokenID(fmt.Sprintf("%032x", i)), entry, 0); !errors.Is(err,
			context.Canceled) {
			t.Fatalf("AppendClaims = %v, want %v", err, context.Canceled)
		}
	}
	if n := st.Unacknowledged(); n != 5 {
		t.Fatalf("%d writes are under way, want 5", n)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for st.Unacknowledged() > 0 {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			t.Fatalf("%d writes have kept their places", st.Unacknowledged())
		}
	}
}

// TestReadersLeaveNoConsumers reads in every way that takes a consumer: a stream has room for a thousand, and abandoned
// ones stay for minutes.
func TestReadersLeaveNoConsumers(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	put(t, s, st, record(web1, "a1"), 0)
	at := time.Now()
	st.Emit(events.Event{Type: events.Enrolled, Time: at, Node: string(web1)})
	st.Emit(events.Event{Type: events.Refused, Time: at, Node: string(web1)})
	if err := s.conn.FlushWithContext(s.ctx); err != nil {
		t.Fatal(err)
	}
	_, _, history := st.History(s.ctx, web1)
	for what, err := range map[string]error{
		"history":   history,
		"revisions": st.Revisions(s.ctx, "", func(*provisioner.Record, trust.Revision) error { return nil }),
		"newest":    st.Records(s.ctx, func(*provisioner.Record, trust.Revision) error { return nil }),
		"events": st.Events(s.ctx, events.Query{Since: at.Add(-time.Hour), Once: true},
			func(*events.Stored) error { return nil }),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"MUSTER_NODES", "MUSTER_EVENTS", "MUSTER_ATTEMPTS", "MUSTER_LIFECYCLE",
		"MUSTER_ALIVE"} {
		stream, err := s.js.Stream(s.ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%s has %d consumers left", name, n)
		}
	}
}

// TestInvalidRecordsAreErrors writes invalid messages into the stream. None is read as a record or as its absence.
func TestInvalidRecordsAreErrors(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	edited := func(edit func(*provisioner.Record)) string {
		r := record(web1, "a1")
		edit(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	tests := map[string]string{
		"of another identity":   edited(func(r *provisioner.Record) { r.Identity = web2 }),
		"of a later schema":     edited(func(r *provisioner.Record) { r.Schema = provisioner.RecordSchema + 1 }),
		"of no schema":          edited(func(r *provisioner.Record) { r.Schema = 0 }),
		"of no state":           edited(func(r *provisioner.Record) { r.State = "" }),
		"of an unknown state":   edited(func(r *provisioner.Record) { r.State = "paused" }),
		"without an attempt":    edited(func(r *provisioner.Record) { r.Attempt = "" }),
		"without a certificate": edited(func(r *provisioner.Record) { r.Next = nil }),
		"that is not JSON":      "hello",
		"that is empty":         "",
		"that is null":          "null",
	}
	for name, data := range tests {
		if _, err := s.js.Publish(s.ctx, "muster.node."+web1.SubjectToken(), []byte(data)); err != nil {
			t.Fatal(err)
		}
		if r, revision, err := st.Record(s.ctx, web1); err == nil || r != nil || revision != 0 {
			t.Errorf("a record %s: %+v at %d, %v", name, r, revision, err)
		}
	}
}

// TestHistoryIsInTheOrderOfWriting reads the revisions of one identity, of all, and the newest of too many.
func TestHistoryIsInTheOrderOfWriting(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	history := func(id wire.Identity) (attempts []string) {
		t.Helper()
		last := trust.Revision(0)
		err := st.Revisions(s.ctx, id, func(r *provisioner.Record, revision trust.Revision) error {
			if revision <= last || id != "" && r.Identity != id {
				t.Errorf("history of %q: revision %d of %s after %d", id, revision, r.Identity, last)
			}
			last = revision
			attempts = append(attempts, r.Attempt)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return attempts
	}
	if got := history(""); got != nil {
		t.Errorf("history of an unknown node = %v", got)
	}
	var after1, after2 trust.Revision
	for i := range 3 {
		after1 = put(t, s, st, record(web1, fmt.Sprintf("a%d", i)), after1)
		after2 = put(t, s, st, record(web2, fmt.Sprintf("b%d", i)), after2)
	}
	for id, want := range map[wire.Identity][]string{
		web1: {"a0", "a1", "a2"}, web2: {"b0", "b1", "b2"}, "": {"a0", "b0", "a1", "b1", "a2", "b2"}, "web": nil,
		"db1.example.net": nil,
	} {
		if got := history(id); !slices.Equal(got, want) {
			t.Errorf("history of %q = %v, want %v", id, got, want)
		}
	}
	stop := errors.New("enough")
	calls := 0
	if err := st.Revisions(s.ctx, "",
		func(*provisioner.Record, trust.Revision) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("Revisions = %v after %d calls, want %v after 1", err, calls, stop)
	}
	for i := range store.History {
		after1 = put(t, s, st, record(web1, fmt.Sprintf("c%d", i)), after1)
	}
	got := history(web1)
	if store.History != 64 || len(got) != store.History || got[0] != "c0" ||
		got[len(got)-1] != fmt.Sprintf("c%d", store.History-1) {
		t.Errorf("history of %d, from %s to %s, want the newest 64", len(got), got[0], got[len(got)-1])
	}
	if got := history(web2); len(got) != 3 {
		t.Errorf("a node that flaps pushed another's history out: %v", got)
	}
	if _, err := s.js.Publish(s.ctx, "muster.node."+web2.SubjectToken(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := st.Revisions(s.ctx, web2, func(*provisioner.Record, trust.Revision) error { return nil }); err == nil {
		t.Error("a history with something else in it is no error")
	}
}

// TestStoreBelongsToItsAuthority binds a new store by several provisioners at once; another authority is refused.
func TestStoreBelongsToItsAuthority(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	ids := make(chan string, 8)
	var opening sync.WaitGroup
	for range cap(ids) {
		opening.Go(func() {
			st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours})
			if err != nil {
				t.Error(err)
				return
			}
			if i := st.Installation(); i.CAFingerprint != ours || i.CreatedAt.IsZero() {
				t.Errorf("installation = %+v", i)
			}
			ids <- st.Installation().ID
		})
	}
	opening.Wait()
	close(ids)
	seen := map[string]int{}
	for id := range ids {
		seen[id]++
	}
	if len(seen) != 1 || seen[""] > 0 {
		t.Errorf("installations %v, want one", seen)
	}
	if st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: "another"}); !errors.Is(err,
		store.ErrInstallation) || st != nil {
		t.Errorf("Open with another authority = %v, %v, want %v", st, err, store.ErrInstallation)
	}
	if got := s.open(t, ours).Installation().ID; seen[got] == 0 {
		t.Errorf("installation is now %q", got)
	}
	for name, cfg := range map[string]store.Config{"no connection": {CAFingerprint: ours},
		"no authority": {Conn: s.conn}} {
		if _, err := store.Open(s.ctx, cfg); err == nil {
			t.Errorf("Open with %s: accepted", name)
		}
	}
}

// TestDurableStreamsKeepEverything reads the broker's configuration: nothing in a durable stream expires or can be
// deleted.
func TestDurableStreamsKeepEverything(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	put(t, s, st, record(web1, "a1"), 0)
	var names []string
	infos := map[string]*jetstream.StreamInfo{}
	for info := range s.js.ListStreams(s.ctx).Info() {
		names = append(names, info.Config.Name)
		infos[info.Config.Name] = info
	}
	want := []string{"MUSTER_ALIVE", "MUSTER_ATTEMPTS", "MUSTER_CERTIFICATES", "MUSTER_CLAIMS", "MUSTER_COMPONENTS",
		"MUSTER_ENTRIES", "MUSTER_EVENTS", "MUSTER_INPUTS", "MUSTER_LEASES", "MUSTER_LIFECYCLE", "MUSTER_NODES",
		"MUSTER_REVOCATIONS", "MUSTER_RUNS", "MUSTER_WAITING"}
	if !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Fatalf("streams %v, want %v", names, want)
	}
	for name, info := range infos {
		c := info.Config
		// Durable streams are synced; reports need not be. Nodes could choose where acknowledgements of reports go.
		persist, reports := jetstream.DefaultPersistMode, slices.Contains([]string{"MUSTER_EVENTS", "MUSTER_ATTEMPTS",
			"MUSTER_LIFECYCLE", "MUSTER_ALIVE", "MUSTER_INPUTS", "MUSTER_RUNS"}, name)
		if reports {
			persist = jetstream.AsyncPersistMode
		}
		if c.MaxAge != 0 || c.Storage != jetstream.FileStorage || c.NoAck != reports || c.PersistMode != persist ||
			c.Retention != jetstream.LimitsPolicy ||
			(c.Discard == jetstream.DiscardNew) != (name == "MUSTER_WAITING" || name == "MUSTER_LEASES") {
			t.Errorf("%s: age %v, storage %v, no acknowledgement %v, retention %v, discards %v", name, c.MaxAge,
				c.Storage, c.NoAck, c.Retention, c.Discard)
		}
		bounded := slices.Contains([]string{"MUSTER_INPUTS", "MUSTER_EVENTS", "MUSTER_ATTEMPTS", "MUSTER_LIFECYCLE",
			"MUSTER_WAITING", "MUSTER_LEASES", "MUSTER_COMPONENTS", "MUSTER_RUNS"}, name)
		// A lost claim gives a use back, and a lost revocation admits a revoked node.
		claims := name == "MUSTER_CLAIMS" || name == "MUSTER_REVOCATIONS"
		if slices.Contains(store.DurableStreams(), name) != c.DenyPurge || claims && c.MaxMsgsPerSubject != -1 {
			t.Errorf("%s: can be purged: %v, %d messages a subject", name, !c.DenyPurge, c.MaxMsgsPerSubject)
		}
		alive := name == "MUSTER_ALIVE" // one of each node, of that many bytes
		if alive != (c.MaxMsgsPerSubject == 1 && c.MaxMsgSize == 4096) {
			t.Errorf("%s: %d messages a subject, of %d bytes each at most", name, c.MaxMsgsPerSubject, c.MaxMsgSize)
		}
		newest := name == "MUSTER_CERTIFICATES" && c.MaxMsgsPerSubject == 1
		if bounded != (c.MaxBytes > 0) || !claims && !alive && !newest && bounded == (c.MaxMsgsPerSubject == store.History) ||
			c.MaxMsgs > 0 {
			t.Errorf("%s: at most %d bytes, %d messages, %d a subject", name, c.MaxBytes, c.MaxMsgs,
				c.MaxMsgsPerSubject)
		}
		if !bounded && !alive && !c.DenyDelete {
			t.Errorf("%s: messages can be deleted", name)
		}
	}
	nodes, err := s.js.Stream(s.ctx, "MUSTER_NODES")
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(context.Context, uint64) error{"deleted": nodes.DeleteMsg,
		"erased": nodes.SecureDeleteMsg} {
		if err := remove(s.ctx, 1); err == nil {
			t.Errorf("a record was %s", name)
		}
	}
	s.open(t, ours) // repeating it is harmless
	if r, _, err := st.Record(s.ctx, web1); r == nil || err != nil {
		t.Errorf("after opening again: %v, %v", r, err)
	}
}

// TestEventSubjects expects CloudEvents by type and identity, and those about strangers in their own stream.
func TestEventSubjects(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		event           events.Event
		stream, subject string
	}{
		"of a node": {events.Event{Type: events.Enrolled, Node: string(web1), Serial: "5b1f"},
			"MUSTER_EVENTS", "muster.event.node.enrolled.web1_example_net"},
		"of a refusal": {events.Event{Type: events.Refused, Node: string(web1), Code: wire.CodeDenied},
			"MUSTER_EVENTS", "muster.event.node.refused.web1_example_net"},
		"of an attempt": {events.Event{Type: events.Attempt, Node: string(web1), Code: wire.CodeTokenInvalid},
			"MUSTER_ATTEMPTS", "muster.attempt.refused.web1_example_net"},
		"of a stranger": {events.Event{Type: events.Attempt, Node: "a.>", Code: wire.CodeIdentityInvalid},
			"MUSTER_ATTEMPTS", "muster.attempt.refused._"},
		"of an unknown node": {events.Event{Type: events.Refused, Node: "", Code: wire.CodeBadRequest},
			"MUSTER_EVENTS", "muster.event.node.refused._"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { // not parallel: a minute of the store may be over before its turn
			tt.event.Time = at
			st.Emit(tt.event)
			stream, err := s.js.Stream(s.ctx, tt.stream)
			if err != nil {
				t.Fatal(err)
			}
			m := eventually(t, s, stream, tt.subject)
			var e struct {
				SpecVersion string       `json:"specversion"`
				ID          string       `json:"id"`
				Source      string       `json:"source"`
				Type        string       `json:"type"`
				Subject     string       `json:"subject"`
				Time        time.Time    `json:"time"`
				Data        events.Event `json:"data"`
			}
			if err := json.Unmarshal(m.Data, &e); err != nil {
				t.Fatal(err)
			}
			if e.SpecVersion != "1.0" || e.ID == "" || !strings.HasSuffix(e.Source, st.Installation().ID) ||
				e.Type != string(tt.event.Type) ||
				e.Subject != tt.event.Node || !e.Time.Equal(at) || e.Data.Serial != tt.event.Serial ||
				e.Data.Code != tt.event.Code {
				t.Errorf("event = %s", m.Data)
			}
		})
	}
}

// emitted emits an event, the first of its kind about its node, and waits until it is stored.
func (s *site) emitted(t testing.TB, st *store.Store, e events.Event) {
	t.Helper()
	st.Emit(e)
	stream, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	kind := strings.TrimPrefix(string(e.Type), "io.muster.")
	eventually(t, s, stream, "muster.event."+kind+"."+wire.Identity(e.Node).SubjectToken())
}

// eventually waits for the first message of a subject.
func eventually(t testing.TB, s *site, stream jetstream.Stream, subject string) *jetstream.RawStreamMsg {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := stream.GetLastMsgForSubject(s.ctx, subject)
		if err == nil {
			return m
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatalf("message of %s: %v", subject, err)
		}
		<-tick.C
	}
}
