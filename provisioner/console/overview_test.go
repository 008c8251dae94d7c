package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Refusals are counted from the log of events, also by a provisioner that has just started.
func TestRefusalsSurviveARestart(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	for range 3 {
		if code := f.Refused(f.Node("web1.example.net")); code != wire.CodeIdentityTaken {
			t.Fatal(code)
		}
	}
	v := signedIn(t, f, "anna", trust.RoleViewer)
	row := regexp.MustCompile(`(?s)code=identity_taken">identity_taken</a></th>.*?<td class="count">(\d+)</td>`)
	counted := func(period string) string {
		if m := row.FindStringSubmatch(v.see("/?period=" + period)); m != nil {
			return m[1]
		}
		return "none"
	}
	f.Eventually("three are counted", func() bool { return counted("hour") == "3" })
	f.Stop()
	f.Start()
	for _, period := range []string{"hour", "day", "week"} {
		f.Eventually("three are counted in the last "+period, func() bool { return counted(period) == "3" })
	}
	f.Refused(f.Node("web1.example.net"))
	f.Eventually("a new one is added", func() bool { return counted("hour") == "4" && counted("week") == "4" })
	if a := v.get("/?period=year"); a.status != http.StatusBadRequest {
		t.Errorf("the period year: %d", a.status)
	}
}

// The overview begins with what is wrong and what to do.
func TestOverviewBeginsWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "anna", trust.RoleOperator)
	f.Eventually("nothing is wrong", func() bool {
		page := v.see("/")
		return strings.Contains(page, "No alarm.") && strings.Contains(page, "iB free")
	})
	if _, err := f.Daemon().Orders().AllowList.Add(f.Context(), operate.AllowOrder{Pattern: "*", Everything: true},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Eventually("an alarm is raised", func() bool { return strings.Contains(v.see("/"), "This needs an operator") })
	page := v.see("/")
	says(t, page, "Allows all", "every name", "What to do:", "muster allow remove", `<a href="/allow">`)
	if strings.Index(page, "Allows all") > strings.Index(page, `class="tile`) {
		t.Error("the counts come before the alarm")
	}
	f.Write("policy/more.rego", "garbage {\n")
	f.Eventually("there are two", func() bool { return strings.Count(v.see("/"), `aria-label="alarm"`) == 2 })
	says(t, v.see("/"), "Policy refused", `<a href="/policies">`)
}

// A stopped agent is not connected, on every page.
func TestStoppedNodeIsNotConnected(t *testing.T) {
	t.Parallel()
	f := served(t)
	agent := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(agent)
	v := signedIn(t, f, "anna", trust.RoleViewer)
	tile := regexp.MustCompile(`href="/nodes\?connected=(yes|no)(?:&amp;sort=connected)?"><span class="figure">1<`)
	shown := func(chip, tiled string) bool {
		chip = `<span class="chip ` + chip + `</span>`
		m := tile.FindStringSubmatch(v.see("/"))
		return strings.Contains(v.see("/nodes"), chip) && strings.Contains(v.see("/nodes/web1.example.net"), chip) &&
			m != nil && m[1] == tiled
	}
	f.Eventually("it is connected", func() bool { return shown(`good">connected`, "yes") })
	agent.Stop()
	f.Eventually("it is not connected", func() bool { return shown(`bad">not connected`, "no") })
	says(t, v.see("/nodes?connected=no"), "web1.example.net")
	f.Eventually("first comes what ends it", func() bool {
		page := v.see("/nodes/web1.example.net")
		start := strings.Index(page, "Start the agent on the machine")
		return start > 0 && start < strings.Index(page, "Revoke: if the machine is stolen") &&
			strings.Contains(page, "It is not connected to a broker, since")
	})
}

// A node that is off does not renew, and the overview says so before its certificate lapses.
func TestCertificatesThatWillLapse(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", trust.RoleViewer)
	f.Eventually("none will", func() bool { return strings.Contains(v.see("/"), "every node renews in time") })
	f.Clock.Advance(25 * 24 * time.Hour)
	v = signedIn(t, f, "ben", trust.RoleViewer)
	f.Eventually("one will, and why", func() bool {
		late := regexp.MustCompile(`(?s)<ul class="late">.*?</ul>`).FindString(v.see("/"))
		return strings.Contains(late, "web1.example.net") && strings.Contains(late, "not connected")
	})
	fresh := f.Node("web2.example.net")
	f.Apply(fresh, f.Enroll(fresh))
	link := regexp.MustCompile(`href="(/nodes[^"]*)">not connected</a></th>`).FindStringSubmatch(v.see("/"))
	if page := v.see(html.UnescapeString(link[1])); listed(page) != "web1" {
		t.Errorf("%s leads to %q", link[1], listed(page))
	} else {
		says(t, page, ` selected>before 20`)
	}
	says(t, v.see("/"), "Next CRL")
}
