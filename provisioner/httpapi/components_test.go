package httpapi_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// component returns one of the installation as the provisioner knows it, nil if it
// does not.
func component(t *testing.T, f *testbed.Fleet, name string) *provisioner.HeardComponent {
	t.Helper()
	var list httpapi.ComponentList
	call(t, f, http.MethodGet, "/v1/components", nil, &list)
	for _, c := range list.Components {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// feature returns a feature of the fleet's provisioner, which lists itself soon after its
// start.
func feature(t *testing.T, f *testbed.Fleet, name string) provisioner.Feature {
	t.Helper()
	var c *provisioner.HeardComponent
	f.Eventually("the provisioner lists itself", func() bool {
		c = component(t, f, "broker.fleet.test")
		return c != nil
	})
	i := slices.IndexFunc(c.Features, func(f provisioner.Feature) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no feature %s among %+v", name, c.Features)
	}
	return c.Features[i]
}

// TestFeaturesFailAndRecover breaks parts of a provisioner and sees each listed as
// failed, and why, and as running once it is mended.
func TestFeaturesFailAndRecover(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	helper := filepath.Join(t.TempDir(), "helper")
	program := func() {
		if err := os.WriteFile(helper, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program()
	f := testbed.New(t, testbed.Options{AllowList: "allow: []\n", Edit: func(c *daemon.Config) {
		c.Configuration.Template, c.Configuration.Helper = "", helper
		c.Waiting.Autosign.Command = helper
		c.ShadowPolicy = c.Policy
	}})
	policy, err := os.ReadDir(filepath.Join(f.Dir, "policy"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("policy", policy[0].Name())
	good, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		features string
		says     string
		breaks   func()
		mends    func()
	}{
		{"policy shadow_policy", "rego", func() { f.Write(name, "package muster.enroll\nallow if {") }, func() { f.Write(name, string(good)) }},
		{"allow_list", "allow", func() { f.Write("allow-list.yaml", "allow: 7\n") }, func() { f.Write("allow-list.yaml", "allow:\n- pattern: web1.example.net\n") }},
		{"helper autosign", "no such file", func() { _ = os.Remove(helper) }, program},
		{"ca enrollment", "expired", func() { f.Clock.Advance(30 * 365 * 24 * time.Hour) }, func() { f.Clock.Advance(-30 * 365 * 24 * time.Hour) }},
	} {
		for _, which := range strings.Fields(tt.features) {
			if got := feature(t, f, which); got.State != provisioner.FeatureRunning {
				t.Errorf("%s, before it breaks: %+v", which, got)
			}
		}
		tt.breaks()
		for _, which := range strings.Fields(tt.features) {
			f.Eventually(which+" has failed", func() bool {
				got := feature(t, f, which)
				return got.State == provisioner.FeatureFailed && strings.Contains(got.Reason, tt.says)
			})
			var running []string
			call(t, f, http.MethodGet, "/features", nil, &running)
			if slices.Contains(running, which) || !slices.Contains(running, "broker") {
				t.Errorf("%s has failed, and these run: %v", which, running)
			}
		}
		tt.mends()
		if tt.says == "expired" {
			continue // the clock went back: an operator's matter
		}
		for _, which := range strings.Fields(tt.features) {
			f.Eventually(which+" runs again", func() bool { return feature(t, f, which).State == provisioner.FeatureRunning })
		}
	}
	f.Eventually("the authority is good again", func() bool { return feature(t, f, "ca").State == provisioner.FeatureRunning })
}

// TestEveryProvisionerKnowsAll has two provisioners on a cluster know each other's
// features, one stop, and the servers die under the other.
func TestEveryProvisionerKnowsAll(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	const second = "second.fleet.test"
	p := f.AddProvisioner(second)
	f.Eventually("the second is known to the first", func() bool {
		c := component(t, f, second)
		return c != nil && !c.Gone && len(c.Failed()) == 0 && c.Version != "" && len(c.Features) > 10
	})
	f.Eventually("brokers ask who may connect", func() bool { return feature(t, f, "callout").State == provisioner.FeatureRunning })
	p.Stop()
	f.Eventually("the second is gone", func() bool { c := component(t, f, second); return c.Gone && c.Stopped })
	f.Servers()[0].Kill()
	var list httpapi.ComponentList
	f.Eventually("the first is alone, and without a broker", func() bool {
		list = httpapi.ComponentList{}
		call(t, f, http.MethodGet, "/v1/components", nil, &list)
		return list.Incomplete != "" && len(list.Components) == 1 && feature(t, f, "broker").State == provisioner.FeatureFailed && feature(t, f, "store").State == provisioner.FeatureFailed
	})
	f.Servers()[0].Start()
	f.Eventually("both are known, and nothing has failed", func() bool {
		c := component(t, f, second)
		return c != nil && c.Gone && len(component(t, f, "broker.fleet.test").Failed()) == 0
	})
}

// TestSmartProxyProtocol asks as Foreman does: names of what runs without a
// credential, all the rest with an operator's certificate.
func TestSmartProxyProtocol(t *testing.T) {
	t.Parallel()
	f := served(t)
	vera := certified(t, f, "vera", provisioner.RoleViewer)
	stranger := remote(t, f, httpapi.Credential{Roots: vera.Roots}, "")
	var running []string
	if err := stranger.Do(f.Context(), http.MethodGet, "/features", nil, &running); err != nil || !slices.Contains(running, "enrollment") || slices.Contains(running, "helper") {
		t.Errorf("features: %v, %v", running, err)
	}
	var p *httpapi.Problem
	if err := stranger.Do(f.Context(), http.MethodGet, "/v2/features", nil, nil); !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
		t.Errorf("/v2/features of a stranger: %v", err)
	}
	var all map[string]map[string]any
	if err := remote(t, f, vera, "").Do(f.Context(), http.MethodGet, "/v2/features", nil, &all); err != nil {
		t.Fatal(err)
	}
	for name, v := range all {
		for _, member := range []string{"http_enabled", "https_enabled", "settings", "state", "capabilities"} {
			if v[member] == nil {
				t.Errorf("feature %s lacks %s: %v", name, member, v)
			}
		}
	}
	if all["api"]["state"] != "running" || all["api"]["https_enabled"] != true || all["helper"]["state"] != "disabled" || all["sealed"]["state"] != "running" {
		t.Errorf("features: %v", all)
	}
}

// TestAPauseIsAFeatureToo shows enrollment as disabled by an operator, not failed.
func TestAPauseIsAFeatureToo(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	call(t, f, http.MethodPost, "/v1/settings/pause", httpapi.NewPause{Why: "rack moves"}, nil)
	f.Eventually("enrollment is disabled", func() bool {
		e := feature(t, f, "enrollment")
		return e.State == provisioner.FeatureDisabled && strings.Contains(e.Reason, "rack moves")
	})
	if code := f.Refused(f.Node("web1.example.net")); code != wire.CodePaused {
		t.Errorf("a newcomer: %s", code)
	}
}

// TestFactsThatDifferAreTold has a second provisioner on a cluster keep other facts than
// the first: both warn, once, and status and components say so until it keeps the same.
func TestFactsThatDifferAreTold(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const second, says = "second.fleet.test", "broker.fleet.test: os.name; second.fleet.test: rack"
	keep := make(chan []string, 1)
	keep <- []string{"os.name", "role"}
	f := testbed.New(t, testbed.Options{Servers: 1, Edit: func(c *daemon.Config) { c.Fleet.Facts = <-keep }})
	standing := func() bool {
		var s httpapi.Status
		call(t, f, http.MethodGet, "/v1/status", nil, &s)
		return slices.ContainsFunc(s.Standing, func(line string) bool {
			return strings.Contains(line, "fleet.facts differs") && strings.Contains(line, says)
		})
	}
	if standing() || feature(t, f, provisioner.FeatureFacts).Settings[provisioner.SettingKept] != "os.name, role" {
		t.Errorf("of one provisioner: %+v", feature(t, f, provisioner.FeatureFacts))
	}
	keep <- []string{"role", "rack"}
	p := f.AddProvisioner(second)
	f.Eventually("status says how they differ", standing)
	f.Eventually("both say so beside the feature, which runs", func() bool {
		for _, name := range []string{"broker.fleet.test", second} {
			c := component(t, f, name)
			if c == nil || !slices.ContainsFunc(c.Features, func(f provisioner.Feature) bool {
				return f.Name == provisioner.FeatureFacts && f.State == provisioner.FeatureRunning && strings.HasSuffix(f.Reason, says)
			}) {
				return false
			}
		}
		return true
	})
	if n := strings.Count(f.Log(), "provisioners keep different facts"); n != 2 {
		t.Errorf("%d warnings, want one of each", n)
	}
	p.Stop()
	keep <- []string{"role", "os.name"}
	f.AddProvisioner(second)
	f.Eventually("it is over", func() bool {
		return !standing() && feature(t, f, provisioner.FeatureFacts).Reason == "" && strings.Contains(f.Log(), "provisioners keep the same facts again")
	})
}
