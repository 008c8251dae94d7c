package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
)

// scrape returns what Prometheus gets.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// want fails the test unless the scrape has all of the lines.
func want(t *testing.T, scraped string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(scraped, "\n"+line+"\n") {
			t.Errorf("not scraped: %s", line)
		}
	}
}

// TestRequestsAreCountedByOutcome counts grants by events and refusals by codes, once each and with known labels only.
func TestRequestsAreCountedByOutcome(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1", nil)
	for _, e := range []events.Event{
		{Type: events.Enrolled, Reason: string(provisioner.ReasonNew)},
		{Type: events.Enrolled, Reason: string(provisioner.ReasonReplay), Repeated: true},
		{Type: events.Enrolled, Reason: "made up"},
		{Type: events.Renewed, Reason: string(provisioner.ReasonRenew)},
		{Type: events.Provisioned}, {Type: events.Provisioned, Repeated: true},
		{Type: events.Attempt, Code: wire.CodeTokenInvalid, LeftOut: 41},
	} {
		m.Event(e)
	}
	m.Done(provisioner.RequestEnroll, time.Millisecond, wire.CodeDenied)
	m.Done(provisioner.RequestEnroll, time.Millisecond, wire.CodeTokenInvalid)
	m.Done(provisioner.RequestConfirm, time.Millisecond, "")
	m.Done(provisioner.RequestEnroll, time.Millisecond, "made_up")
	m.Rejected(wire.CodeBadRequest)
	m.ConnectionRefused(wire.CodeTokenExpired)
	m.Busy()
	want(t, scrape(t, m),
		`muster_enrollments_total{reason="new"} 1`, `muster_enrollments_total{reason="replay"} 0`,
		`muster_enrollments_total{reason="other"} 1`,
		`muster_renewals_total 1`, `muster_confirmations_total 1`,
		`muster_attempts_unreported_total 41`, `muster_refusals_total{code="denied"} 1`,
		`muster_refusals_total{code="token_invalid"} 0`,
		`muster_refusals_total{code="other"} 1`, `muster_attempts_refused_total{code="token_invalid"} 1`,
		`muster_attempts_refused_total{code="bad_request"} 1`,
		`muster_connections_refused_total{code="token_expired"} 1`, `muster_busy_total 1`,
		`muster_request_duration_seconds_count{request="enroll"} 3`,
		`muster_request_duration_seconds_count{request="confirm"} 1`,
		`muster_build_info{version="v1"} 1`)
}

// TestStateIsReadAtTheScrape exports the present state, without unknown values.
func TestStateIsReadAtTheScrape(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	state := make(chan metrics.State, 1)
	m := metrics.New("v1", func() metrics.State { return <-state })
	state <- metrics.State{}
	if got := scrape(t, m); strings.Contains(got, "muster_certificates") ||
		strings.Contains(got, "muster_store_used") || strings.Contains(got, "muster_crl") ||
		strings.Contains(got, "not_after") {
		t.Errorf("what is not known is exported:\n%s", got)
	}
	c := fleet.Summary{Live: 3, Day: 1, Week: 2, Expired: 2, Connected: map[fleet.ConnectionState]int{fleet.No: 4}}
	state <- metrics.State{
		InHand: 3, EventsDropped: 7, AuthorityEnds: now,
		Alarms: []events.Alarm{{Code: wire.CodeStorageLow}}, Stored: &metrics.Stored{Used: 5, Limit: 9},
		Nodes: &c,
	}
	want(t, scrape(t, m),
		"muster_requests_in_hand 3", "muster_events_dropped_total 7",
		"muster_authority_not_after_timestamp_seconds 1.8e+09", `muster_alarm_standing{code="storage_low"} 1`,
		`muster_alarm_standing{code="clock_behind"} 0`,
		"muster_store_used_bytes 5", "muster_store_limit_bytes 9", "muster_certificates_live 3",
		"muster_certificates_expired 2",
		`muster_nodes_connected{connected="no"} 4`, `muster_certificates_expiring{within="1d"} 1`, `muster_certificates_expiring{within="7d"} 2`)
}

// TestKeepsPrometheusConventions lints names, units and help.
func TestKeepsPrometheusConventions(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1", func() metrics.State {
		return metrics.State{Stored: &metrics.Stored{}, Nodes: &fleet.Summary{}, AuthorityEnds: time.Now()}
	})
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "muster_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
