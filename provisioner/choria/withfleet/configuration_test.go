package choria_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// A server would take all of these and never come back. The template takes the setting from the server's facts.
func TestSettingsThatLoseAServerAreRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{
		Template: "{{ .Facts.setting }} = {{ .Facts.value }}\n",
		Edit: func(c *daemon.Config) {
			c.Choria.Brokers = []string{"broker.example.net:4222", "nats://other.example.net:4222"}
		},
	})
	for i, tt := range []struct{ setting, value, want string }{
		{"plugin.choria.middleware_hosts", "nats://elsewhere.example.net:4222", "no broker in choria.brokers"},
		{"plugin.choria.middleware_hosts", "broker.example.net:4222,", "no broker in choria.brokers"},
		{"plugin.choria.server.provision", "true", "muster sets it"},
		{"plugin.security.provider", "puppet", "muster sets it"},
		{"plugin.security.file.key", "/tmp/key.pem", "muster sets it"},
		{"identity", "web2.example.net", "muster sets it"},
		{"plugin.choria.middlewarehosts", "broker.example.net:4222", `did you mean "plugin.choria.middleware_hosts"?`},
		{"log_level", "info", `did you mean "loglevel"?`},
		{"brokers", "broker.example.net:4222", "unknown to Choria servers"},
	} {
		name := fmt.Sprintf("web%d.example.net", i+10)
		s := start(t, f, name, facts(tt.setting, tt.value))
		var cause string
		f.Eventually(name+" is refused", func() bool {
			i := slices.IndexFunc(f.Events(), func(e events.Event) bool { return e.Node == name && e.Type == events.Refused })
			if i >= 0 {
				cause = f.Events()[i].Cause
			}
			return i >= 0
		})
		if !strings.Contains(cause, tt.want) || s.has("configure") || f.Record(name) != nil {
			t.Errorf("%s = %s: cause %q, want %q, and no record", tt.setting, tt.value, cause, tt.want)
		}
	}
	for _, tt := range []struct{ setting, value string }{
		{"plugin.choria.middleware_hosts", "other.example.net:4222"},
		{"plugin.rack.number", "7"},
		{"collectives", "mcollective,london"},
	} {
		s := start(t, f, strings.ReplaceAll(tt.setting, "_", "-")+".example.net", facts(tt.setting, tt.value))
		s.provisioned()
		s.mu.Lock()
		if s.pushed[tt.setting] != tt.value || s.pushed["plugin.choria.server.provision"] != "false" {
			t.Errorf("pushed %v, want %s = %s", s.pushed, tt.setting, tt.value)
		}
		s.mu.Unlock()
	}
	f.Check()
}

// facts answers an inventory.
func facts(setting, value string) func(action string) (int, any) {
	return func(action string) (int, any) {
		if action != "inventory" {
			return 0, nil
		}
		return 0, map[string]any{"version": "0.30.2", "facts": map[string]string{"setting": setting, "value": value}}
	}
}

func TestServerGetsWhatItNeedsByDefault(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	s := start(t, f, web1, nil)
	s.provisioned()
	s.mu.Lock()
	defer s.mu.Unlock()
	for setting, want := range map[string]string{
		"identity":                         web1,
		"loglevel":                         "info",
		"collectives":                      "mcollective",
		"main_collective":                  "mcollective",
		"plugin.choria.middleware_hosts":   "broker.example.net:4222",
		"plugin.choria.use_srv":            "false",
		"plugin.choria.server.provision":   "false",
		"plugin.security.provider":         "file",
		"plugin.security.file.certificate": "/etc/choria/ssl/certificate.pem",
		"plugin.security.file.key":         "/etc/choria/ssl/private.pem",
		"plugin.security.file.ca":          "/etc/choria/ssl/ca.pem",
	} {
		if s.pushed[setting] != want {
			t.Errorf("%s = %q, want %q", setting, s.pushed[setting], want)
		}
	}
	if p := f.Events(); !slices.ContainsFunc(p, func(e events.Event) bool { return e.Node == web1 && e.Type == events.Provisioned }) {
		t.Error("no event says that the server is provisioned")
	}
}

// The other protocol's agent cannot take the name of a Choria server, nor the reverse.
func TestNameBelongsToItsProtocol(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	start(t, f, web1, nil).provisioned()
	if code := f.Refused(f.Node(web1)); code != wire.CodeIdentityTaken {
		t.Errorf("muster's agent got %s", code)
	}
	n := f.Node("web2.example.net")
	f.Apply(n, f.Enroll(n))
	start(t, f, n.Identity, nil)
	f.Eventually("the Choria server is refused", func() bool {
		return slices.ContainsFunc(f.Events(), func(e events.Event) bool {
			return e.Node == n.Identity && e.Code == wire.CodeIdentityTaken && strings.Contains(e.Cause, "another protocol")
		})
	})
}
