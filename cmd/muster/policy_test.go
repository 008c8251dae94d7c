package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/policies"
)

// TestPolicyWorkbench changes the policy of a running provisioner. A node enrolls; a stricter policy is replayed on its
// recorded input, explained, refused because its tests fail, corrected, and reloaded.
func TestPolicyWorkbench(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	muster(t, dir, "jwt", "two.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port,
		"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub")
	agent := start(t, dir, "server", "run", "--token-file", "two.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")

	// What the batch of this second has is there when the next comes.
	var report policies.ReplayReport
	for report.Decisions == 0 {
		out := muster(t, dir, append([]string{"policy", "replay", "prov/policy", "-o", "json"}, config...)...)
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if report.Nodes != 1 || report.Flipped != 0 {
		t.Errorf("the policy in use decides otherwise than it did: %+v", report)
	}

	run := func(status int, says string, args ...string) string {
		t.Helper()
		cmd := command(t, append(args, config...)...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != status || !regexp.MustCompile(`(?m)`+says).Match(out) {
			t.Errorf("muster %s: exit %d: %s, want %d and %s", strings.Join(args, " "), got, out, status, says)
		}
		return string(out)
	}
	for _, d := range []string{"next", "broken"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	next := "package muster.enroll\n\ndefault allow := false\n\nallow if input.facts.role == \"db\"\n\ndeny contains \"no web here\" if startswith(input.identity, \"web\")\n"
	write(t, filepath.Join(dir, "next/next.rego"), next)
	run(1, `^web1\.example\.net +allow +deny +\d+ +no web here$`, "policy", "replay", "next")
	run(1, `^1 decision about 1 node replayed: the verdict of 1 node would change$`, "policy", "replay", "next")
	run(0, `^ *Verdict: deny$`, "policy", "eval", "next", "--node", "web1.example.net")
	write(t, filepath.Join(dir, "in.json"), `{"identity":"db1.example.net","facts":{"role":"db"}}`)
	run(0, `"verdict": "allow"`, "policy", "eval", "next", "--input", "in.json", "-o", "json")
	run(1, `no decision about web9\.example\.net is recorded`, "policy", "eval", "next", "--node", "web9.example.net")
	run(1, `no decision about web1\.example\.net/haproxy is recorded`, "policy", "eval", "next", "--node", "web1.example.net/haproxy")
	write(t, filepath.Join(dir, "in.yaml"), "identity: web1.example.net\ncertificate: {name: haproxy}\ncsr: {dns_names: [db1.example.net]}\n")
	run(0, `^ *Reasons: db1\.example\.net is neither`, "policy", "eval", "next", "--input", "in.yaml")
	write(t, filepath.Join(dir, "in.yaml"), "identity: web1.example.net\ncertificate: {name: haproxy}\n")
	run(0, `"server_auth": true`, "policy", "eval", "next", "--input", "in.yaml", "-o", "json")
	run(2, `give one of --input and --node`, "policy", "eval", "next")
	run(2, `--since`, "policy", "replay", "next", "--since", "0h")
	write(t, filepath.Join(dir, "broken/p.rego"), "package muster.enroll\nallow := input.fact.x\n")
	run(1, `broken/p\.rego:2`, "policy", "replay", "broken")

	// `policy test` takes no --config: it asks no provisioner.
	tested := func(status int, says string) {
		t.Helper()
		cmd := command(t, "policy", "test", "next")
		cmd.Dir = dir
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != status || !strings.Contains(string(out), says) {
			t.Errorf("policy test: exit %d: %s, want %d and %q", cmd.ProcessState.ExitCode(), out, status, says)
		}
	}
	tested(1, "has no tests")
	test := "package muster.enroll_test\n\nimport data.muster.enroll\n\ntest_db if enroll.allow with input as {\"facts\": {\"role\": \"%\"}, \"identity\": \"x\"}\n"
	write(t, filepath.Join(dir, "next/next_test.rego"), strings.Replace(test, "%", "web", 1))
	tested(1, "1 of 1 tests failed")

	// It is refused by the provisioner as well, which says so, and goes on.
	for _, f := range []string{"next.rego", "next_test.rego"} {
		b, err := os.ReadFile(filepath.Join(dir, "next", f))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "prov/policy", map[string]string{"next.rego": "open.rego", "next_test.rego": "open_test.rego"}[f]), string(b))
	}
	run(1, `test_db`, "policy", "reload", "--why", "stricter")
	provisioner.waitFor("code=policy_refused")
	write(t, filepath.Join(dir, "next/next_test.rego"), strings.Replace(test, "%", "db", 1))
	tested(0, "pass")
	write(t, filepath.Join(dir, "prov/policy/open_test.rego"), strings.Replace(test, "%", "db", 1))
	run(0, `policy [0-9a-f]{12} `, "policy", "reload")
	provisioner.waitFor("alarm cleared")
	agent.stop()
	provisioner.stop()
	noSecrets(t, provisioner, agent)
}
