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

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// component returns one of the installation as the provisioner knows it, nil if it
// does not.
func component(t *testing.T, f *testbed.Fleet, name string) *fleet.HeardComponent {
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
func feature(t *testing.T, f *testbed.Fleet, name string) fleet.Feature {
	t.Helper()
	var c *fleet.HeardComponent
	f.Eventually("the provisioner lists itself", func() bool {
		c = component(t, f, "broker.fleet.test")
		return c != nil
	})
	i := slices.IndexFunc(c.Features, func(f fleet.Feature) bool { return f.Name == name })
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
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.Configuration.Template, c.Configuration.Helper = "", []string{helper}
		c.Waiting.Autosign.Command = []string{helper}
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
		{"policy shadow_policy", "rego", func() { f.Write(name, "package muster.enroll\nallow if {") },
			func() { f.Write(name, string(good)) }},
		{"helper autosign", "no such file", func() { _ = os.Remove(helper) }, program},
		{"ca enrollment", "expired", func() { f.Clock.Advance(30 * 365 * 24 * time.Hour) },
			func() { f.Clock.Advance(-30 * 365 * 24 * time.Hour) }},
	} {
		for _, which := range strings.Fields(tt.features) {
			if got := feature(t, f, which); got.State != fleet.FeatureRunning {
				t.Errorf("%s, before it breaks: %+v", which, got)
			}
		}
		tt.breaks()
		for _, which := range strings.Fields(tt.features) {
			f.Eventually(which+" has failed", func() bool {
				got := feature(t, f, which)
				return got.State == fleet.FeatureFailed && strings.Contains(got.Reason, tt.says)
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
			f.Eventually(which+" runs again", func() bool { return feature(t, f, which).State == fleet.FeatureRunning })
		}
	}
	f.Eventually("the authority is good again",
		func() bool { return feature(t, f, "ca").State == fleet.FeatureRunning })
}

// TestSmartProxyProtocol asks as Foreman does: names of what runs without a
// credential, all the rest with an operator's certificate.
func TestSmartProxyProtocol(t *testing.T) {
	t.Parallel()
	f := served(t)
	vera := certified(t, f, "vera", trust.RoleViewer)
	stranger := remote(t, f, httpapi.Credential{Roots: vera.Roots}, "")
	var running []string
	if err := stranger.Do(f.Context(), http.MethodGet, "/features", nil, &running); err != nil ||
		!slices.Contains(running, "enrollment") || slices.Contains(running, "helper") {
		t.Errorf("features: %v, %v", running, err)
	}
	var p *httpapi.Problem
	if err := stranger.Do(f.Context(), http.MethodGet, "/v2/features", nil, nil); !errors.As(err, &p) ||
		p.Status != http.StatusForbidden {
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
	if all["api"]["state"] != "running" || all["api"]["https_enabled"] != true ||
		all["helper"]["state"] != "disabled" || all["sealed"]["state"] != "running" {
		t.Errorf("features: %v", all)
	}
}
