package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOperate is an operator's day with processes: a limited token is used and
// looked at, revoked, a node is thrown out, a signer is taken back, and each
// of them says so in a table, in JSON, and in one line.
func TestOperate(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	config := []string{"--config", "prov/provisioner.yaml"}
	ask := func(args ...string) string { t.Helper(); return muster(t, dir, append(args, config...)...) }
	want := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)` + pattern).MatchString(out) {
			t.Errorf("output lacks %s:\n%s", pattern, out)
		}
	}
	if out, err := command(t, "token", "list", "--config", filepath.Join(dir, "prov/provisioner.yaml")).CombinedOutput(); err == nil || !strings.Contains(string(out), "no provisioner answers") {
		t.Errorf("without a provisioner: %v: %s", err, out)
	}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	sign := func(file string, args ...string) {
		t.Helper()
		muster(t, dir, append([]string{"jwt", file, "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:" + port,
			"--default", "--ca", "prov/ca/root.pem", "--seal", "prov/seal.pub"}, args...)...)
	}
	sign("two.jwt", "--uses", "2", "--identity", "web*.example.net")
	sign("unused.jwt")
	want(ask("token", "list"), `\A\z`)
	agent := start(t, dir, "server", "run", "--token-file", "two.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	provisioner.waitFor("node provisioned")

	want(ask("token", "list"), `^[0-9a-f]{32}  good +1 of 2 left  signer  web\*\.example\.net  `)
	var list struct {
		Tokens []struct {
			ID   string `json:"tid"`
			Left int    `json:"left"`
		} `json:"tokens"`
	}
	if err := json.Unmarshal([]byte(ask("token", "list", "-o", "json")), &list); err != nil || len(list.Tokens) != 1 || list.Tokens[0].Left != 1 {
		t.Fatalf("tokens = %+v, %v", list, err)
	}
	tokens := list.Tokens
	want(ask("token", "show", "two.jwt"), `^web1\.example\.net  enrolled  20\S+Z  127\.0\.0\.1  [0-9a-f]{16}$`)
	want(ask("token", "revoke", tokens[0].ID, "--why", "leaked"), `^web1\.example\.net  enrolled`)
	want(ask("token", "show", tokens[0].ID), `State: revoked\n +Revoked: 20\S+Z by \S+: leaked$`)
	ask("token", "revoke", "unused.jwt")
	want(ask("token", "list"), `^[0-9a-f]{32}  revoked +- `)
	if listed := ask("token", "list", "-o", "json"); strings.Count(listed, `"left": 1`) != 1 || strings.Count(listed, `"left"`) != 1 || strings.Count(listed, `"first_seen"`) != 1 || strings.Contains(listed, "0001-") {
		t.Errorf("of a token that no node has used: %s", listed)
	}

	ask("node", "revoke", "web1.example.net", "--why", "stolen laptop")
	provisioner.waitFor("code=identity_revoked")
	want(ask("ca", "crl"), `^-----BEGIN X509 CRL-----$`)
	write(t, filepath.Join(dir, "crl.pem"), ask("ca", "crl"))
	want(openssl(t, dir, "crl", "-in", "crl.pem", "-noout", "-text"), `Serial Number`)
	ask("node", "retire", "web1.example.net")

	want(ask("signer", "list"), `^signer  good +Ed25519  any node  - +provisioner\.yaml  [0-9a-f]{64}$`)
	ask("signer", "remove", "signer", "--why", "moved on")
	want(ask("signer", "list"), `^signer  removed .* removed by \S+: moved on`)
	ask("signer", "add", "prov/signer.pem", "--name", "web", "--identity", "web*.example.net")
	want(ask("signer", "list"), `^web +good +Ed25519  web\*\.example\.net  - +added by \S+ +[0-9a-f]{64}$`)

	for _, tt := range []struct{ args, status, says string }{
		{"token show nosuch", "1", `"nosuch" is neither the id of a token`},
		{"token show 00000000000000000000000000000000", "1", "no token with this id"},
		{"node revoke web9.example.net", "1", "no such node"},
		{"node revoke web_1", "2", "identity"},
		{"node grant web1.example.net --expires 0.5y", "2", "--expires"},
		{"signer remove nosuch", "1", "nosuch"},
		{"signer add prov/seal.pub", "1", "prov/seal.pub"},
	} {
		cmd := command(t, append(strings.Fields(tt.args), config...)...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := string(out); !strings.Contains(got, tt.says) || strings.Count(strings.TrimSpace(got), "\n") > 1 || cmd.ProcessState.ExitCode() != int(tt.status[0]-'0') {
			t.Errorf("muster %s: exit %d: %s, want %s and %q", tt.args, cmd.ProcessState.ExitCode(), got, tt.status, tt.says)
		}
	}
	agent.stop()
	provisioner.stop()
	noSecrets(t, provisioner, agent)
}

// TestConfigFlagOverridesEnvironment sets MUSTER_URL. --config on the command line overrides it, and --url overrides both.
func TestConfigFlagOverridesEnvironment(t *testing.T) {
	t.Parallel()
	const elsewhere = "https://127.0.0.1:9"
	file := filepath.Join(t.TempDir(), "provisioner.yaml")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"neither":     {nil, elsewhere},
		"a file":      {[]string{"--config", file}, file},
		"a file, URL": {[]string{"--config", file, "--url", "https://127.0.0.2:9"}, "https://127.0.0.2:9"},
	} {
		c := command(t, append([]string{"node", "list"}, tt.args...)...)
		c.Env = append(c.Environ(), "MUSTER_URL="+elsewhere)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) || tt.want != elsewhere && strings.Contains(string(out), elsewhere) {
			t.Errorf("%s: %v: %s, want %s", name, err, out, tt.want)
		}
	}
}
