package httpapi_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// TestStatusShowsProblemsUntilTheyAreSolved has a fleet with every kind of problem.
func TestStatusShowsProblemsUntilTheyAreSolved(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.Allow("web*.example.net")
	look := func() (s httpapi.Status) {
		t.Helper()
		call(t, f, http.MethodGet, "/v1/status", nil, &s)
		return s
	}
	f.Eventually("nothing stands", func() bool { s := look(); return len(s.Standing) == 0 && s.Nodes != nil })
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Enroll(f.Node("web2.example.net"))
	f.Ask(f.Node("db1.example.net")) // and waits, which is no refusal
	stranger := f.Node("db2.example.net")
	stranger.Token = f.Token(testbed.Limited(0, "web*.example.net"))
	f.Refused(stranger)
	over := f.Token(func(c *jwt.Claims) { c.ExpiresAt = f.Clock.Now().Add(-time.Minute) })
	if nc, err := simnode.Dial(f.URL(), over); err == nil { // the broker does not let them in
		nc.Close()
		t.Error("connected with a token that is over")
	}
	f.Eventually("the fleet is counted", func() bool {
		s := look()
		return s.Nodes.Total == 2 && s.Nodes.States[provisioner.StateProvisioned] == 1 &&
			s.Nodes.States[provisioner.StateEnrolled] == 1 && s.Waiting == 1 &&
			s.Activity.Enrolled == 2 && s.Activity.Refused[wire.CodeTokenIdentity] == 1 &&
			s.Activity.Refused[wire.CodeTokenExpired] >= 1 && len(s.Activity.Refused) == 2 &&
			len(s.Provisioners) == 1 && s.Installation != ""
	})
	before := look().Activity.Refused
	f.Stop()
	f.Start()
	f.Eventually("refusals are those on record", func() bool {
		return look().Nodes != nil && maps.Equal(before, look().Activity.Refused)
	})
	call(t, f, http.MethodPost, "/v1/allow", httpapi.NewAllowance{
		Why: "lab", AllowOrder: operate.AllowOrder{Pattern: "*", Everything: true},
	}, nil)
	call(t, f, http.MethodPost, "/v1/settings/pause", httpapi.NewPause{Why: "rack moves"}, nil)
	f.Write("policy/more.rego", "package muster.enroll\n\ngarbage {\n") // a compiler has several lines to say of that
	f.Eventually("what is wrong stands, a line each", func() bool {
		standing := look().Standing
		all := strings.Join(standing, "\n")
		return len(standing) == strings.Count(all, "\n")+1 &&
			strings.Contains(all, "alarm policy_refused on broker.fleet.test: ") &&
			strings.Contains(all, "more.rego:4") && strings.Contains(all, "every name") &&
			strings.Contains(all, "rack moves")
	})
	call(t, f, http.MethodPost, "/v1/allow/remove", httpapi.OldAllowance{Pattern: "*", Why: "done"}, nil)
	call(t, f, http.MethodPost, "/v1/settings/resume", httpapi.Resumption{Why: "done"}, nil)
	f.Write("policy/more.rego", "package muster.enroll\n")
	f.Eventually("nothing stands again", func() bool { return len(look().Standing) == 0 })
	f.Clock.Advance(25 * 24 * time.Hour)
	// That of the second machine is no certificate of the fleet until it is confirmed.
	f.Eventually("a certificate ends soon", func() bool {
		s := look()
		return s.Nodes.Live == 1 && s.Nodes.Week == 1 && s.Nodes.Day == 0 && s.Nodes.Expired == 0
	})
}
