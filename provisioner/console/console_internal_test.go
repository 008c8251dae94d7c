package console

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

func TestNextIsOurs(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/nodes?state=revoked": "/nodes?state=revoked", "": "/", "nodes": "/", "//evil.example.net": "/", "/\\evil.example.net": "/",
		"https://evil.example.net/": "/", "/\t/evil.example.net": "/", "javascript:alert(1)": "/",
	} {
		if got := local(next); got != want {
			t.Errorf("%q: %q, want %q", next, got, want)
		}
	}
}

func TestRoundUp(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 9: 10, 10: 10, 11: 20, 21: 40, 99: 100, 150: 200, 7001: 8000} {
		if got := roundUp(n); got < n || got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "now", -30 * time.Second: "30 s ago", -20 * time.Minute: "20 min ago", -5 * time.Hour: "5 h ago", -72 * time.Hour: "3 days ago", 48 * time.Hour: "in 2 days",
	} {
		if got := ago(now.Add(d), now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := ago(time.Time{}, now); got != "never" {
		t.Errorf("zero: %q", got)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567", -5: "-5"} {
		if got := number(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestTheHourIsBounded has strangers come from everywhere, and the hour go by.
func TestTheHourIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 1, 12, 0, 30, 0, time.UTC)
	a := newActivity(nil, nil, func() time.Time { return now })
	event := func(typ provisioner.EventType, at time.Time, data string) {
		a.take(&provisioner.StoredEvent{Type: typ, Time: at, Data: []byte(data)})
	}
	const many = 500
	for i := range 3 * many {
		event(provisioner.EventAttempt, now.Add(time.Duration(i)*time.Millisecond), fmt.Sprintf(`{"code":"token_invalid","source":"10.0.%d.%d","left_out":1}`, i/256, i%256))
	}
	for range 3 * maxKept {
		event(provisioner.EventEnrolled, now.Add(-30*time.Minute), `{"node":"web1.example.net"}`)
	}
	for _, code := range []wire.Code{wire.CodeApprovalPending, wire.CodeDeferred} { // no refusals
		event(provisioner.EventRefused, now, fmt.Sprintf(`{"code":%q}`, code))
	}
	event(provisioner.EventEnrolled, now.Add(-2*time.Hour), `{}`)
	event(provisioner.EventEnrolled, now.Add(time.Hour), `{}`)
	h := a.hour()
	if len(h.Minutes) != minutes || h.Let != 3*maxKept || h.Attempts != 6*many || h.Refused != 0 || len(h.Codes) != 1 || h.Codes[0] != (codeCount{wire.CodeTokenInvalid, 6 * many}) {
		t.Errorf("hour: let in %d, attempts %d, codes %v", h.Let, h.Attempts, h.Codes)
	}
	if len(a.kept) > 2*maxKept {
		t.Errorf("%d events", len(a.kept))
	}
	now = now.Add(window - time.Minute)
	if h := a.hour(); h.Let != 0 || h.Attempts == 0 {
		t.Errorf("an hour later: let in %d, attempts %d", h.Let, h.Attempts)
	}
	now = now.Add(2 * time.Minute)
	if h := a.hour(); h.Attempts != 0 {
		t.Errorf("later: attempts %d", h.Attempts)
	}
}

// TestAChartGoesOnAfterAClockThatWasAhead has the clock be a day ahead for two hours,
// and then be set right.
func TestAChartGoesOnAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	right := time.Date(2027, 1, 1, 12, 0, 30, 0, time.UTC)
	now := right.Add(24 * time.Hour)
	a := newActivity(nil, nil, func() time.Time { return now })
	for range 2 * minutes {
		a.take(&provisioner.StoredEvent{Type: provisioner.EventEnrolled, Time: now, Data: []byte(`{"node":"web1.example.net"}`)})
		now = now.Add(time.Minute)
	}
	now = right.Add(2 * time.Hour)
	for range minutes {
		a.take(&provisioner.StoredEvent{Type: provisioner.EventEnrolled, Time: now, Data: []byte(`{"node":"web1.example.net"}`)})
		now = now.Add(time.Minute)
	}
	if h := a.hour(); h.Let < minutes-1 {
		t.Errorf("let in %d, want %d", h.Let, minutes-1)
	}
}
