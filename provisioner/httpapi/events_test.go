package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
)

// streamed is how long a stream may take: all of a long one takes a busy machine minutes.
const streamed = 5 * time.Minute

// raw asks for a path over the socket and returns the answer as it comes.
func raw(t *testing.T, f *testbed.Fleet, path string, header http.Header) *http.Response {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(f.Dir, "data", httpapi.SocketName))
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: observe(transport)}
	ctx, cancel := context.WithTimeout(t.Context(), streamed)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provisioner"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// alarms is how the types of alarms begin. On a machine with much else to do they come
// among whatever a test is about.
const alarms = "io.muster.alarm."

// nextEvent reads one server-sent event that is no alarm: its id and its type.
func nextEvent(t *testing.T, r *bufio.Reader) (id, typ string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "id: "):
			id = strings.TrimPrefix(line, "id: ")
		case strings.HasPrefix(line, "event: "):
			typ = strings.TrimPrefix(line, "event: ")
		case line == "" && strings.HasPrefix(typ, alarms):
			typ = ""
		case line == "" && typ != "":
			return id, typ
		}
	}
}

// all returns the types of the events that there are, but for alarms.
func all(t *testing.T, f *testbed.Fleet, q events.Query) []events.Type {
	t.Helper()
	q.Once = true
	var types []events.Type
	if err := client(f).Events(f.Context(), q, func(e *events.Stored, line []byte) error {
		if !strings.HasPrefix(string(e.Type), alarms) {
			types = append(types, e.Type)
		}
		return described(t, "StoredEvent", line)
	}); err != nil {
		t.Fatal(err)
	}
	return types
}

// TestEventsAreReadAgainAndFollowed reads what has happened, filtered, follows
// what comes then, and goes on where it stopped.
func TestEventsAreReadAgainAndFollowed(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	begun := f.Clock.Now().Add(-time.Hour)
	web1 := f.Node("web1.example.net")
	f.Apply(web1, f.Enroll(web1))
	f.Clock.Advance(time.Second) // events of one millisecond in two streams have no order
	stranger := f.Node("web2.example.net")
	nc := f.Dial(stranger.Token)
	stranger.Token = "forged"
	if r, err := requestOver(f, nc, stranger); err != nil || r.Refusal == nil {
		t.Fatalf("a forged token: %v, %v", r, err)
	}
	since := events.Query{Since: begun}
	want := []events.Type{events.Enrolled, events.Provisioned, events.Attempt}
	f.Eventually("all events are stored", func() bool { return len(all(t, f, since)) == len(want) })
	if got := all(t, f, since); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	for name, q := range map[string]events.Query{
		"type": {Type: "io.muster.attempt."}, "node": {Node: "web2.example.net"}, "code": {Code: wire.CodeTokenInvalid},
	} {
		q.Since = begun
		if got := all(t, f, q); !slices.Equal(got, want[2:]) {
			t.Errorf("by %s: events %v, want %v", name, got, want[2:])
		}
	}
	if got := all(t, f, events.Query{Since: f.Clock.Now().Add(time.Hour)}); len(got) != 0 {
		t.Errorf("since tomorrow: %v", got)
	}

	stream := raw(t, f, "/v1/events?since="+begun.UTC().Format(time.RFC3339), http.Header{})
	if got := stream.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	r := bufio.NewReader(stream.Body)
	ids := make([]string, len(want))
	for i, w := range want {
		var typ string
		if ids[i], typ = nextEvent(t, r); typ != string(w) {
			t.Errorf("event %d is %s, want %s", i, typ, w)
		}
	}
	call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/revoke", httpapi.Reason{Why: "gone"}, nil)
	if _, typ := nextEvent(t, r); typ != string(events.Revoked) {
		t.Errorf("followed to %s, want the revocation", typ)
	}
	again := bufio.NewReader(raw(t, f, "/v1/events", http.Header{"Last-Event-Id": {ids[0]}}).Body)
	for _, w := range []events.Type{want[1], want[2], events.Revoked} {
		if _, typ := nextEvent(t, again); typ != string(w) {
			t.Errorf("after the first: %s, want %s", typ, w)
		}
	}
	var p *httpapi.Problem
	if err := client(f).Do(f.Context(), http.MethodGet, "/v1/events?node=web_1&once=perhaps&code=nosuch&tpye=x", nil,
		nil); !errors.As(err, &p) ||
		p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "web_1") ||
		!strings.Contains(p.Detail, "once") || !strings.Contains(p.Detail, "tpye") ||
		!strings.Contains(p.Detail, "nosuch") {
		t.Errorf("four mistakes: %v", err)
	}
}

// TestMetricsAreScraped finds what a fleet has done in the metrics of its
// provisioner.
func TestMetricsAreScraped(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	web1 := f.Node("web1.example.net")
	f.Apply(web1, f.Enroll(web1))
	f.Eventually("certificates are counted, and all the rest", func() bool {
		b, err := io.ReadAll(raw(t, f, "/metrics", http.Header{}).Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			`muster_enrollments_total{reason="new"} 1`, `muster_confirmations_total 1`,
			`muster_request_duration_seconds_count{request="enroll"} 1`,
			`muster_alarm_standing{code="storage_low"} 0`,
			`muster_requests_in_hand 0`,
		} {
			if !strings.Contains(string(b), "\n"+line+"\n") {
				return false
			}
		}
		return strings.Contains(string(b), "\nmuster_certificates_live ")
	})
}
