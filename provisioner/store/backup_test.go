package store_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/provisioner/orders"
	"muster/provisioner/services"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// exported is a backup in memory.
type exported struct {
	messages []backup.Message
	before   func(backup.Message) // called before a message is taken; may be nil
}

// take takes a message; see [store.Store.Export].
func (e *exported) take(stream string, sequence uint64, subject string, data []byte) error {
	m := backup.Message{
		Stream:   stream,
		Sequence: sequence,
		Subject:  subject,
		Data:     slices.Clone(data),
	}
	if e.before != nil {
		e.before(m)
	}
	e.messages = append(e.messages, m)
	return nil
}

// streams returns the names of the streams, in their order.
func (e *exported) streams() (names []string) {
	for _, m := range e.messages {
		names = append(names, m.Stream)
	}
	return slices.Compact(names)
}

func (e *exported) texts(subject string) (texts []string) {
	for _, m := range e.messages {
		if m.Subject == subject {
			texts = append(texts, string(m.Data))
		}
	}
	return texts
}

func export(t testing.TB, s *site, st *store.Store) *exported {
	t.Helper()
	e := &exported{}
	if err := st.Export(s.ctx, e.take); err != nil {
		t.Fatal(err)
	}
	return e
}

func begin(t testing.TB, s *site) *store.Import {
	t.Helper()
	into, err := store.NewImport(s.ctx, store.Config{Conn: s.conn}, "b1")
	if err != nil {
		t.Fatal(err)
	}
	return into
}

func recovery() *orders.Recovery {
	return &orders.Recovery{
		Schema: orders.RecoverySchema,
		Began:  time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC),
		Cause:  trust.Cause{By: "tester"},
	}
}

// finish ends a restore, and returns the watermark of the store.
func finish(t testing.TB, s *site, into *store.Import) *store.Watermark {
	t.Helper()
	if err := into.Finish(s.ctx, recovery()); err != nil {
		t.Fatal(err)
	}
	mark, err := into.Done(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

func write(t testing.TB, s *site, into *store.Import, messages []backup.Message) {
	t.Helper()
	for _, m := range messages {
		if err := into.Message(s.ctx, m.Stream, m.Sequence, m.Subject, m.Data); err != nil {
			t.Fatal(err)
		}
	}
}

// filled is a store with messages in every durable stream.
func filled(t *testing.T) (*store.Store, *site) {
	t.Helper()
	st, s := newStore(t)
	r := record(web1, "a1")
	after := put(t, s, st, r, 0)
	r.Attempt = "a2"
	put(t, s, st, r, after)
	put(t, s, st, record(web2, "a3"), 0)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, err1 := st.AppendClaims(s.ctx, "00112233445566778899aabbccddeeff", claims("a1"), 0)
	revoke(t, s, st, revocation("r1", nil))
	revoke(t, s, st, revocation("r2", ofToken))
	_, err4 := st.Clock.Put(s.ctx, trust.ClockKey, &trust.ClockMark{Time: at}, 0)
	signer, grant := signerEntry(t, "web"), &orders.Grant{ID: "g", Identity: web1, At: at, ExpiresAt: at.Add(time.Hour)}
	_, err5 := st.Logs().Signers.Put(s.ctx, signer.LogKey(), signer, 0)
	_, err6 := st.Logs().Grants.Put(s.ctx, grant.LogKey(), grant, 0)
	_, err7 := st.PutCertificate(s.ctx, &services.Certificate{Schema: services.Schema, Node: web1, Name: "https",
		Attempt: "a4"}, 0)
	if err := errors.Join(err1, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	return st, s
}

func TestImportEqualsExport(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	if diff := cmp.Diff(store.DurableStreams(), out.streams()); diff != "" {
		t.Errorf("streams in their order:\n%s", diff)
	}
	into, stop := start(t, t.TempDir())
	defer stop()
	i := begin(t, into)
	write(t, into, i, out.messages)
	mark := finish(t, into, i)
	restored := into.open(t, ours)
	if restored.Installation().ID != st.Installation().ID {
		t.Errorf("installation %+v, want %+v", restored.Installation(), st.Installation())
	}
	again := export(t, into, restored)
	for _, m := range out.messages {
		is := again.texts(m.Subject)
		if m.Subject == "muster.entry.installation" {
			is = is[1:] // behind the one that marks the restore
		}
		if diff := cmp.Diff(out.texts(m.Subject), is); diff != "" {
			t.Errorf("%s (-exported +restored):\n%s", m.Subject, diff)
		}
	}
	if e, _ := restored.Logs().Recovery.Get(orders.RecoveryKey); e.Value == nil || e.Value.Epoch != 1 ||
		mark.Epoch != 1 {
		t.Errorf("recovery %+v and watermark of epoch %d, want the first", e.Value, mark.Epoch)
	}
	if n := mark.Streams["MUSTER_REVOCATIONS"].Messages; n != 2 {
		t.Errorf("the watermark has %d revocations, want 2", n)
	}
	if _, err := store.NewImport(into.ctx, store.Config{Conn: into.conn}, "b2"); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("over a store: %v, want ErrNotEmpty", err)
	}
}

// TestInterruptedRestoreBeginsAgain cuts a restore short: the store is refused, and restoring again works.
func TestInterruptedRestoreBeginsAgain(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	into, stop := start(t, t.TempDir())
	defer stop()
	for n := range out.messages {
		write(t, into, begin(t, into), out.messages[:n])
		if _, err := store.Open(into.ctx, store.Config{Conn: into.conn, CAFingerprint: ours}); !errors.Is(err,
			store.ErrHalfRestored) {
			t.Fatalf("opened after %d of %d messages: %v, want ErrHalfRestored", n, len(out.messages), err)
		}
	}
	i := begin(t, into)
	write(t, into, i, out.messages)
	finish(t, into, i)
	if r, _, err := into.open(t, ours).Record(into.ctx, web1); err != nil || r.Attempt != "a2" {
		t.Errorf("record %+v, %v", r, err)
	}
}

// TestExportIncludesEveryIdentity rewrites a record during the export so often that all its revisions at the beginning
// are gone: the newest is still exported.
func TestExportIncludesEveryIdentity(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	after := put(t, s, st, record(web2, "first"), 0)
	for i := range 2000 { // more than a consumer sends ahead
		put(t, s, st, record(wire.Identity(fmt.Sprintf("n%d.example.net", i)), "a"), 0)
	}
	out := &exported{}
	written := false
	out.before = func(m backup.Message) {
		if written {
			return
		}
		written = true
		for i := range 3 * store.History {
			after = put(t, s, st, record(web2, "a"+strconv.Itoa(i)), after)
		}
	}
	if err := st.Export(s.ctx, out.take); err != nil {
		t.Fatal(err)
	}
	all := out.texts("muster.node." + web2.SubjectToken())
	var r provisioner.Record
	if len(all) == 0 || json.Unmarshal([]byte(all[len(all)-1]), &r) != nil ||
		r.Attempt != "a"+strconv.Itoa(3*store.History-1) {
		t.Errorf("%d revisions, the last by %q", len(all), r.Attempt)
	}
}

func TestInvalidBackupMessagesAreRefused(t *testing.T) {
	t.Parallel()
	good, err := json.Marshal(record(web1, "a1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct{ stream, subject, data, want string }{
		"another stream": {"MUSTER_EVENTS", "muster.event.x", "{}", "not part of a backup"},
		"a record of another": {"MUSTER_NODES", "muster.node.web2", string(good),
			`it is on muster.node.web2, and belongs on muster.node.web1_example_net`},
		"no record":        {"MUSTER_NODES", "muster.node.web1_example_net", "{}", "schema 0, want 1"},
		"claims":           {"MUSTER_CLAIMS", "muster.claims.x", "{}", "schema 0, want 1"},
		"claims elsewhere": {"MUSTER_CLAIMS", "muster.claims.", "{}", `message on "muster.claims."`},
		"a revocation":     {"MUSTER_REVOCATIONS", "muster.revocation.token.x", "{}", "schema 0, want 1"},
		"an entry elsewhere": {"MUSTER_ENTRIES", "muster.node.web1_example_net", "{}",
			`message on "muster.node.web1_example_net"`},
	} {
		if err := store.CheckMessage(m.stream, 1, m.subject, []byte(m.data)); err == nil ||
			!strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: %v, want %s", name, err, m.want)
		}
	}
	if err := store.CheckMessage("MUSTER_NODES", 1, "muster.node.web1_example_net", good); err != nil {
		t.Error(err)
	}
}

// BenchmarkBackup exports MUSTER_BENCH_RECORDS records (10,000 by default) into a file, and restores them.
func BenchmarkBackup(b *testing.B) {
	records, _ := strconv.Atoi(os.Getenv("MUSTER_BENCH_RECORDS"))
	if records == 0 {
		records = 10_000
	}
	ctx := context.Background()
	s, stop := startWith(b, broker.Config{StoreDir: b.TempDir(), Unsynced: true})
	defer stop()
	s.ctx = ctx
	i := begin(b, s)
	began := time.Now()
	installation, _ := json.Marshal(store.Installation{ID: "i", CAFingerprint: ours, CreatedAt: time.Now()})
	for n := range records {
		id := wire.Identity(fmt.Sprintf("n%d.example.net", n))
		r := record(id, wire.NewID())
		r.Next.DER = make([]byte, 600) // like a certificate, not compressible
		_, _ = rand.Read(r.Next.DER)   // never fails
		data, _ := json.Marshal(r)
		if err := i.Message(ctx, "MUSTER_NODES", uint64(n+1), "muster.node."+id.SubjectToken(), data); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(i.Message(ctx, "MUSTER_ENTRIES", 1, "muster.entry.installation", installation),
		i.Finish(ctx, recovery())); err != nil {
		b.Fatal(err)
	}
	if _, err := i.Done(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(records), "restore-µs/record")
	st, err := store.Open(ctx, store.Config{Conn: s.conn, CAFingerprint: ours})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		began := time.Now()
		var size counter
		w, err := backup.NewWriter(&size,
			backup.Header{ID: "b", Installation: "i", CAFingerprint: ours, StartedAt: time.Now()})
		if err == nil {
			err = st.Export(ctx, w.Message)
		}
		if err == nil {
			_, err = w.Close(time.Now())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/float64(records), "backup-µs/record")
		b.ReportMetric(float64(size)/float64(records), "bytes/record")
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
