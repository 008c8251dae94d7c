package console_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// TestPausing pauses enrollment from the overview and resumes it there, with
// reasons, and has a site's pause resumed as well.
func TestPausing(t *testing.T) {
	t.Parallel()
	f := served(t)
	v, viewer := signedIn(t, f, "anna", trust.RoleOperator), signedIn(t, f, "vera", trust.RoleViewer)
	says(t, v.see("/"), `href="/do/pause"`)
	unsaid(t, viewer.see("/"), "/do/")
	if a := viewer.post("/do/pause", "why", "because"); a.status != http.StatusForbidden {
		t.Errorf("a viewer who pauses: %d", a.status)
	}
	says(t, v.see("/do/pause"), "Pause enrollment?", "the whole installation", "stay connected")
	if a := v.post("/do/pause", "why", " "); a.status != http.StatusBadRequest {
		t.Errorf("without a reason: %d", a.status)
	}
	if a := v.post("/do/pause", "why", "a rogue among them"); a.status != http.StatusSeeOther ||
		a.header.Get("Location") != "/?done=pause" {
		t.Fatalf("pause: %d %s", a.status, a.body)
	}
	page := v.see("/?done=pause")
	says(t, page, "Enrollment is paused", "Enrollment is stopped", "a rogue among them", "by anna",
		`href="/do/resume?site="`)
	unsaid(t, page, `href="/do/pause"`, "muster resume")
	unsaid(t, viewer.see("/"), "Resume enrollment")
	n := f.Node("web1.example.net")
	if code := f.Refused(n); code != wire.CodePaused {
		t.Errorf("enrolling meanwhile: %s", code)
	}
	f.Eventually("its page leads to where that ends", func() bool {
		return strings.Contains(v.see("/nodes/web1.example.net"), `<a href="/">Resume enrollment</a>`)
	})
	v.see("/do/resume?site=")
	if a := v.post("/do/resume", "site", "", "why", "found it"); a.status != http.StatusSeeOther {
		t.Fatalf("resume: %d %s", a.status, a.body)
	}
	unsaid(t, v.see("/nodes/web1.example.net"), "Resume enrollment")
	f.Apply(n, f.Enroll(n))
	if a := v.post("/do/resume", "site", "", "why", "again"); a.status != http.StatusConflict {
		t.Errorf("resume what is not paused: %d", a.status)
	}
	if _, err := f.Daemon().Orders().Pauses.Begin(f.Context(), "ams1", false,
		trust.Cause{By: "x", Why: "y"}); err != nil {
		t.Fatal(err)
	}
	says(t, v.see("/"), "Enrollment is stopped at site ams1", `href="/do/resume?site=ams1"`,
		`href="/do/pause"`)
	says(t, v.see("/do/resume?site=ams1"), "site ams1", `name="site" value="ams1"`)
	v.post("/do/resume", "site", "ams1", "why", "done")
	if strings.Contains(v.see("/"), "Enrollment is stopped") {
		t.Error("the site is paused still")
	}
	if a := v.get("/do/explode"); a.status != http.StatusNotFound {
		t.Errorf("an action that is none: %d", a.status)
	}
}
