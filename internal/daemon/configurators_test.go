package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestAFactStaysTheValueOfOneSetting uses the template that `init` ships.
func TestAFactStaysTheValueOfOneSetting(t *testing.T) {
	t.Parallel()
	shipped, err := os.ReadFile(filepath.Join(install(t, nil), "server.conf"))
	if err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{Template: string(shipped)})
	tests := map[string]struct {
		facts any
		want  string // value of registration_file, "" if refused
	}{
		"a path":         {map[string]any{"registration_file": "/etc/facts.json"}, "/etc/facts.json"},
		"a number":       {map[string]any{"registration_file": 12345678901234567}, "12345678901234567"},
		"a line break":   {map[string]any{"registration_file": "x\nprovision = false"}, ""},
		"a return":       {map[string]any{"registration_file": "x\rprovision = false"}, ""},
		"an object":      {map[string]any{"registration_file": map[string]int{"a": 1}}, ""},
		"a list":         {map[string]any{"registration_file": []int{1}}, ""},
		"nothing at all": {map[string]any{}, "absent"},
	}
	for name, tt := range tests {
		n := f.Node(strings.ReplaceAll(name, " ", "-") + ".example.net")
		n.Facts = testbed.Facts(t, tt.facts)
		if tt.want == "" {
			if got := f.Refused(n); got != wire.CodeConfigurationFailed {
				t.Errorf("%s: refused as %s, want %s", name, got, wire.CodeConfigurationFailed)
			}
			continue
		}
		got, ok := f.Enroll(n).Configuration["registration_file"]
		if ok != (tt.want != "absent") || ok && got != tt.want {
			t.Errorf("%s: registration_file = %q (%v), want %q", name, got, ok, tt.want)
		}
	}
	f.Check()
}

func TestTemplateMistakesAreFoundAtTheStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		ok   bool
	}{
		"an unknown field":    {"a = {{ .Nope }}\n", false},
		"an unknown function": {"a = {{ nope }}\n", false},
		"no setting":          {"no equals sign\n", false},
		"a doubled setting":   {"a = 1\na = 2\n", false},
		"a fact":              {"role = {{ .Facts.role }}\n", true},
		"a list of facts":     {"brokers = {{ join .URLs \",\" }}\n", true},
		"a choice":            {"{{ if eq .Hostname \"web1\" }}role = web{{ else }}role = db{{ end }}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := install(t, nil)
			if err := os.WriteFile(filepath.Join(dir, "server.conf"), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
			if tt.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "server.conf") {
				t.Errorf("Load = %v, want accepted %v", err, tt.ok)
			}
		})
	}
}

func TestAnOpenPolicyIsAStandingWarning(t *testing.T) {
	t.Parallel()
	const warning = "policy admits unknown names"
	open := testbed.New(t, testbed.Options{})
	open.Stop()
	open.Start()
	if n := strings.Count(open.Log(), warning); n != 2 {
		t.Errorf("the open policy is warned of %d times in two starts", n)
	}
	if f := testbed.New(t, testbed.Options{DefaultPolicy: true}); strings.Contains(f.Log(), warning) {
		t.Error("the default policy is warned of")
	}
}
