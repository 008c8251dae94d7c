package store_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

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
