package store_test

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"muster/provisioner/events"
	"muster/provisioner/store"
)

// TestLostEventsAreFewWarnings emits into a closed connection.
func TestLostEventsAreFewWarnings(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	var log bytes.Buffer // written by this goroutine alone
	st, err := store.Open(s.ctx,
		store.Config{Conn: s.conn, CAFingerprint: ours, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.conn.Close()
	for range 100 {
		st.Emit(events.Event{Type: events.Enrolled, Node: string(web1)})
	}
	if lines := strings.Count(log.String(), "\n"); lines != 7 || !strings.Contains(log.String(), "events lost") ||
		!strings.Contains(log.String(), string(web1)) {
		t.Errorf("%d lines of log, want seven that say so:\n%s", lines, log.String())
	}
}

// TestEventsOfAType reads each type by its whole name, as many as there are among all.
func TestEventsOfAType(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	since := time.Now().Add(-time.Hour)
	for _, m := range events.Types {
		if !strings.HasPrefix(string(m.Type), events.OfServer) {
			st.Emit(events.Event{Type: m.Type, Node: string(web1), Time: time.Now()})
		}
	}
	s.said(t, web2, "startup", 0)
	s.said(t, web2, "provisioned", 0)
	s.said(t, web2, "shutdown", 0)
	s.said(t, web2, "alive", 0)
	read := func(q events.Query) map[string]int {
		t.Helper()
		q.Since, q.Once = since, true
		all := map[string]int{}
		if err := st.Events(s.ctx, q, func(e *events.Stored) error { all[string(e.Type)]++; return nil }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	var all map[string]int
	for tick := time.NewTicker(5 * time.Millisecond); len(all) < len(events.Types); <-tick.C {
		all = read(events.Query{})
	}
	for _, m := range events.Types {
		want := map[string]int{}
		for kind, n := range all {
			if strings.HasPrefix(kind, string(m.Type)) {
				want[kind] = n
			}
		}
		if got := read(events.Query{Type: string(m.Type)}); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", m.Type, got, want)
		}
	}
}
