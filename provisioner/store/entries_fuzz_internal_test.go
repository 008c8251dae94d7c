package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// FuzzStoredEvent checks that a message in a stream of events is taken for no more than its
// subject allows: what a node publishes is that node's, and of a type that nodes have.
func FuzzStoredEvent(f *testing.F) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	e, err := json.Marshal(provisioner.StoredEvent{SpecVersion: "1.0", ID: "a", Source: "s", Type: provisioner.EventRevoked, Subject: "web2.example.net", Time: at, DataContentType: "application/json", Data: json.RawMessage(`{"agent":"x"}`)})
	if err != nil {
		f.Fatal(err)
	}
	own := strings.TrimSuffix(wire.AllNodeEvents, "*.*")
	for _, subject := range []string{subjectEvent + "node.enrolled.web1_example_net", subjectAttempt + "refused.web1_example_net", own + "web1_example_net.startup", own + "web1_example_net.alive", own + "x", ""} {
		f.Add(subject, e)
		f.Add(subject, []byte(`null`))
		f.Add(subject, []byte(`{"type":"io.muster.server.startup","data":{"agent":1}}`))
	}
	f.Fuzz(func(t *testing.T, subject string, b []byte) {
		m := message{subject: subject, data: b, sequence: 1, at: at}
		read, ok := decodeEvent(m)
		stored := storedEvent(subject, b, at)
		id, _, known := nodeEvent(subject)
		if !strings.HasPrefix(subject, own) || strings.Count(subject, ".") != strings.Count(wire.AllNodeEvents, ".") {
			return // no node can publish on it
		}
		if ok && known && (read.Node != string(id) || !strings.HasPrefix(string(read.Type), lifecyclePrefix)) {
			t.Fatalf("on %q: read as %s of %q", subject, read.Type, read.Node)
		}
		if stored != nil && (stored.Subject != string(id) || !strings.HasPrefix(string(stored.Type), lifecyclePrefix)) {
			t.Fatalf("on %q: stored as %s of %q", subject, stored.Type, stored.Subject)
		}
		if stored != nil {
			if line, err := json.Marshal(stored); err == nil && strings.ContainsAny(string(line), "\n\r") {
				t.Fatalf("on %q: not one line: %q", subject, line)
			}
		}
	})
}
