package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

// TestEnrollmentIsPausedOverTheAPI has an operator pause and resume, with a reason,
// and a viewer look; strangers learn from /readyz that it is paused and well.
func TestEnrollmentIsPausedOverTheAPI(t *testing.T) {
	t.Parallel()
	f := served(t)
	anna := remote(t, f, certified(t, f, "anna", trust.RoleOperator), "")
	vera := remote(t, f, certified(t, f, "vera", trust.RoleViewer), "")
	stranger := remote(t, f, httpapi.Credential{Roots: certified(t, f, "ruth", trust.RoleViewer).Roots}, "")
	const pause, resume = "/v1/settings/pause", "/v1/settings/resume"
	if got := status(t, f, vera, http.MethodPost, pause, httpapi.NewPause{Why: "x"}); got != http.StatusForbidden {
		t.Errorf("a viewer pauses: %d", got)
	}
	if got := status(t, f, anna, http.MethodPost, pause, httpapi.NewPause{}); got != http.StatusBadRequest {
		t.Errorf("without a reason: %d", got)
	}
	if got := status(t, f, anna, http.MethodPost, pause,
		httpapi.NewPause{Site: "a b", Why: "x"}); got != http.StatusBadRequest {
		t.Errorf("a site that cannot be: %d", got)
	}
	if got := status(t, f, anna, http.MethodPost, resume, httpapi.Resumption{Why: "x"}); got != http.StatusConflict {
		t.Errorf("resume of what is not paused: %d", got)
	}
	var s httpapi.Settings
	for _, site := range []jwt.Site{"ams1", ""} {
		if err := anna.Do(f.Context(), http.MethodPost, pause, httpapi.NewPause{Site: site, Why: "rack moves"},
			&s); err != nil {
			t.Fatal(err)
		}
	}
	if code := f.Refused(f.Node("web1.example.net")); code != wire.CodePaused {
		t.Errorf("a newcomer: %s", code)
	}
	var health httpapi.Health
	if err := stranger.Do(f.Context(), http.MethodGet, "/readyz", nil, &health); err != nil || !health.Paused {
		t.Errorf("/readyz while paused: %+v, %v, want it well and paused", health, err)
	}
	s = httpapi.Settings{}
	if err := vera.Do(f.Context(), http.MethodGet, "/v1/settings", nil, &s); err != nil || len(s.Pauses) != 2 ||
		s.Pauses[0].Site != "" || s.Pauses[1].Site != "ams1" || s.Pauses[1].By != "operator:anna" ||
		s.Pauses[1].Why != "rack moves" {
		t.Errorf("settings: %+v, %v", s, err)
	}
	f.Eventually("metrics say so", func() bool {
		return strings.Contains(scraped(t, f), `muster_alarm_standing{code="enrollment_paused"} 1`)
	})
	if err := anna.Do(f.Context(), http.MethodPost, resume, httpapi.Resumption{Why: "done"}, &s); err != nil ||
		len(s.Pauses) != 1 {
		t.Errorf("resumed: %+v, %v", s, err)
	}
	f.Enroll(f.Node("web1.example.net"))
}

// scraped returns the metrics.
func scraped(t *testing.T, f *testbed.Fleet) string {
	t.Helper()
	b, err := io.ReadAll(raw(t, f, "/metrics", http.Header{}).Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
