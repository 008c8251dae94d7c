package server_test

import (
	"path/filepath"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// pushes adds a setting to the fleet's configurations.
func (f *fleet) pushes(key, value string) {
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test",
				Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
					if key == "srv_domain" {
						delete(e.Configuration, "brokers")
					}
					e.Configuration[key] = value
				})}
		}
	})
}

// A configuration would keep the node from getting any other. The node refuses it and asks again until it is
// corrected.
func TestAHarmfulConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, slip := range map[string]struct{ key, value, says string }{
		"provision, in another case": {"Provision", "true", "provision is true"},
		"provision, with a prefix":   {"plugin.choria.server.PROVISION", "true", "provision is true"},
		"provision, neither":         {"Provision", "maybe", "neither true nor false"},
		"no name of a domain":        {"srv_domain", "example .net", "example .net"},
		"an interval":                {"alive_interval", "100ms", "want 1s to 24h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.pushes(slip.key, slip.value)
			cfg := f.node("web1.example.net")
			a := f.run(cfg)
			a.await(server.EventFailed, 1)
			f.awaitLog("enrollment failed", slip.says, "policy, template or helper")
			if exists(filepath.Join(cfg.SSLDir, "certificate.pem")) {
				t.Errorf("in force; log:\n%s", f.log.String())
			}
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}

// Another program edits each configuration so that the node must enroll. That costs a certificate each time, so the
// node pauses.
func TestRepeatedEnrollmentsPause(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	conf := cfg.ConfFile
	cfg.SetSteps(func(name string) {
		if name == "switched" {
			writeFile(t, conf, readFile(t, conf)+"provision = true\n")
		}
	})
	a := f.run(cfg)
	a.await(server.EventApplied, 3)
	if n := f.countLog("node has to enroll again right after it enrolled"); n == 0 {
		t.Errorf("no word of it:\n%s", f.log.String())
	}
}
