package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testbed"
)

// TestAllowImport replaces what a source has in the allow-list by what its file says, and
// shows all mistakes of a file at once.
func TestAllowImport(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	config := filepath.Join(f.Dir, "provisioner.yaml")
	f.Allow("db*.example.net")
	imports := func(text string, args ...string) (string, error) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "racks.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"allow", "import", path, "--source", "racks", "--config", config}, args...)
		out, err := command(t, args...).CombinedOutput()
		return string(out), err
	}
	const first = "allow:\n- pattern: web*.example.net\n- {pattern: app1.example.net, comment: rack 4}\n- pattern: db*.example.net\n"
	for _, tt := range []struct {
		text string
		args []string
		says []string
	}{
		{first, []string{"--dry-run"}, []string{"add     web*.example.net", "keep    db*.example.net", "nothing was changed", "2 changes, 0 entries"}},
		{first, nil, []string{"add     app1.example.net", "2 changes, 0 entries"}},
		{first, []string{"-o", "json"}, []string{`"unchanged": 2`, `"kept": [`}},
		{"allow:\n- {pattern: app1.example.net, comment: rack 5}\n", nil, []string{"change  app1.example.net", "end     web*.example.net", "2 changes"}},
	} {
		out, err := imports(tt.text, tt.args...)
		for _, want := range tt.says {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("import of %q %q lacks %q: %v\n%s", tt.text, tt.args, want, err, out)
			}
		}
	}
	list := muster(t, f.Dir, "allow", "list", "--config", config)
	if strings.Contains(list, "web*") || !strings.Contains(list, "racks") || !strings.Contains(list, "rack 5") || !strings.Contains(list, "db*") {
		t.Errorf("listed after that:\n%s", list)
	}
	out, err := imports("allow:\n- pattern: A..b\n- pattern: x.example.net\n- pattern: x.example.net\n")
	for _, want := range []string{"entry 1: ", "entry 3: "} {
		if err == nil || strings.Count(out, want) != 1 {
			t.Errorf("not said once: %s\n%s", want, out)
		}
	}
	if out, err := imports("allow:\n- {pattern: y.example.net, expires: }\n"); err == nil || !strings.Contains(out, "has no value") {
		t.Errorf("an end without a value: %v: %s", err, out)
	}
	if out, err := imports("allow:\n- pattern: '*'\n"); err == nil || !strings.Contains(out, "admits every name") {
		t.Errorf("a list of every name: %v: %s", err, out)
	}
	f.Check()
}
