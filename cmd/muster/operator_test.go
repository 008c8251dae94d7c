package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOperatorsOverHTTPS is an operator's first day with processes: a credential
// and a token, what their role lets them do, and their removal.
func TestOperatorsOverHTTPS(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port, api := freePort(t), freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	path := filepath.Join(dir, "prov/provisioner.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "\napi:\n", "\napi:\n  listen: 127.0.0.1:"+api+"\n  names: [localhost]\n", 1))
	start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml").waitFor("provisioner is serving")
	socket := func(args ...string) string { t.Helper(); return muster(t, dir, append(args, "--config", path)...) }
	url := []string{"--url", "https://localhost:" + api, "--login", filepath.Join(dir, "anna.pem")}
	fails := func(says string, args ...string) {
		t.Helper()
		cmd := command(t, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v: %s, want %q", args, err, out, says)
		}
	}

	out := socket("operator", "add", "anna", "--role", "operator", "--certificate", "-o", "json")
	// The key is secret; roots are not.
	credential := filepath.Join(dir, "anna.pem")
	if err := os.Chmod(credential, 0o640); err != nil {
		t.Fatal(err)
	}
	fails("muster: --login: "+credential+": mode 0640 lets other users in: chmod 600 "+credential+"\n", append([]string{"status"}, url...)...)
	if err := os.Chmod(credential, 0o600); err != nil {
		t.Fatal(err)
	}
	fails("--names, with patterns of nodes, is for --role foreman", "operator", "add", "vera", "--role", "viewer", "--names", "web*.example.net", "--certificate")
	fails("covers every name", "operator", "add", "foreman", "--role", "foreman", "--names", "*", "--certificate", "--config", path)
	socket("operator", "add", "foreman", "--role", "foreman", "--names", "build-*.example.net", "--certificate")
	fails("needs viewer", "status", "--url", "https://localhost:"+api, "--login", filepath.Join(dir, "foreman.pem"))
	if out := socket("operator", "list", "-o", "wide"); !strings.Contains(out, "build-*.example.net") {
		t.Errorf("list: %s", out)
	}
	fails("give one name", "node", "grant", "a.example.net", "b.example.net", "--one-time", "--config", path)
	if out := socket("node", "grant", "build-1.example.net", "--one-time"); !regexp.MustCompile(`(?m)^[A-Za-z0-9_-]{43}$`).MatchString(out) {
		t.Errorf("one-time token: %s", out)
	}
	fails("no such node has enrolled", "node", "retire", "build-1.example.net", "--awaiting", "--config", path)
	installation := regexp.MustCompile(`"installation": "([^"]+)"`).FindStringSubmatch(out)
	if installation == nil {
		t.Fatalf("added: %s", out)
	}
	if info, err := os.Stat(filepath.Join(dir, "anna.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credential: %v, %v", info, err)
	}
	if out := muster(t, dir, append([]string{"operator", "list"}, url...)...); !regexp.MustCompile(`(?m)^anna +operator +\S+ +in 89d +\d+s ago +\S+`).MatchString(out) {
		t.Errorf("list: %s", out)
	}
	// If the new credential cannot be written, the old one stays valid.
	fails("/proc/anna.pem", "operator", "add", "anna", "--role", "viewer", "--certificate", "--out", "/proc/anna.pem", "--config", path)
	fails("give a new name with --out", "operator", "add", "anna", "--role", "viewer", "--certificate", "--config", path)
	if out := muster(t, dir, append([]string{"operator", "list"}, url...)...); !regexp.MustCompile(`(?m)^anna +operator +`).MatchString(out) {
		t.Errorf("a credential was not written, and anna is: %s", out)
	}
	zero := strings.Repeat("0", 32)
	fails("why: missing", append([]string{"token", "revoke", zero}, url...)...)
	muster(t, dir, append([]string{"node", "revoke", "--all", "--dry-run"}, url...)...) // changes nothing, so needs no reason
	muster(t, dir, append([]string{"token", "revoke", zero, "--why", "leaked"}, url...)...)
	fails("needs admin", append([]string{"operator", "remove", "anna", "--why", "x"}, url...)...)

	write(t, filepath.Join(dir, "anna.jwt"), muster(t, dir, "operator", "token", "anna", "--key", "anna.pem", "--installation", installation[1]))
	exposed := filepath.Join(dir, "exposed.pem")
	if b, err := os.ReadFile(filepath.Join(dir, "anna.pem")); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(exposed, b, 0o644); err != nil {
		t.Fatal(err)
	}
	fails("lets other users in", "operator", "token", "anna", "--key", exposed, "--installation", installation[1])
	byToken := append(url, "--login", filepath.Join(dir, "anna.jwt"))
	muster(t, dir, append([]string{"token", "list"}, byToken...)...)
	socket("operator", "remove", "anna", "--why", "has left")
	fails("not an operator's credential", append([]string{"token", "list"}, url...)...)
	fails("not an operator's credential", append([]string{"token", "list"}, byToken...)...)
}
