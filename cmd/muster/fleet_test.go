package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
)

// patience bounds every wait.
const patience = 60 * time.Second

// TestFromTokenToMachine is the README's walk with processes: init, a token
// signed by openssl alone, a provisioner, an agent that waits for approval,
// gets it, ends on SIGTERM, and comes back.
func TestFromTokenToMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port)

	// The signer is a certificate and an encrypted key, as in Choria's post.
	openssl(t, dir, "req", "-x509", "-newkey", "rsa:2048", "-keyout", "prov-key.pem", "-out", "prov-cert.pem", "-days", "1825", "-subj", "/CN=prov", "-passout", "pass:hunter2")
	edit(t, filepath.Join(dir, "prov/provisioner.yaml"), "- file: signer.pem", "- file: ../prov-cert.pem")
	muster(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml", "--validate")
	provisioner := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")

	write(t, filepath.Join(dir, "provisioning.jwt"), opensslToken(t, dir, map[string]any{
		"cht": "toomanysecrets", "chs": false, "chu": "localhost:" + port, "chpd": true, "iss": "choria cli", "sub": "choria_provisioning",
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(),
	}))
	agentArgs := func(node string) []string {
		return []string{"--token-file", "provisioning.jwt", "--ssl-dir", node, "--config", node + "/server.conf", "--identity", "web1.example.net"}
	}
	agent := start(t, dir, append([]string{"server", "run"}, agentArgs("web1")...)...)
	agent.waitFor("approval_pending")
	agent.stop() // or it would wait as long as it was told to
	muster(t, dir, "allow", "add", "web*.example.net", "--config", "prov/provisioner.yaml")
	agent = start(t, dir, append([]string{"server", "run"}, agentArgs("web1")...)...)
	agent.waitFor("mode=normal")

	node := filepath.Join(dir, "web1")
	openssl(t, node, "verify", "-CAfile", "ca.pem", "-untrusted", "certificate.pem", "certificate.pem")
	text := openssl(t, node, "x509", "-in", "certificate.pem", "-noout", "-text")
	for _, want := range []string{"DNS:web1.example.net", "URI:spiffe://example.net/node/web1.example.net", "TLS Web Client Authentication"} {
		if !strings.Contains(text, want) {
			t.Errorf("the certificate lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "TLS Web Server Authentication") {
		t.Error("the certificate is good for servers")
	}
	if info, err := os.Stat(filepath.Join(node, "private.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private.pem: %v, %v", info, err)
	}

	// Another machine under the same name is refused, and the log says why.
	impostor := start(t, dir, append([]string{"server", "run"}, agentArgs("web1-again")...)...)
	provisioner.waitFor("identity_taken")
	impostor.stop()

	// Everything ends on SIGTERM with status 0, and the node comes back in
	// normal mode without enrolling again.
	agent.stop()
	provisioner.stop()
	noSecrets(t, agent, provisioner, impostor)
	provisioner = start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
	provisioner.waitFor("provisioner is serving")
	agent = start(t, dir, append([]string{"server", "run"}, agentArgs("web1")...)...)
	agent.waitFor("mode=normal")
	doctor := muster(t, dir, append([]string{"server", "doctor"}, agentArgs("web1")...)...)
	if strings.Contains(doctor, "fail  ") {
		t.Errorf("doctor:\n%s", doctor)
	}
	agent.stop()
	provisioner.stop()
	noSecrets(t, agent, provisioner)
}

// TestDemoCommand runs `muster demo` and reads its result as a program would.
func TestDemoCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	var r struct {
		Nodes, Provisioned int
		NodesPerMinute     float64 `json:"nodes_per_minute"`
	}
	out := muster(t, dir, "demo", "--nodes", "5", "--files", "kept", "-o", "json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Nodes != 5 || r.Provisioned != 5 || r.NodesPerMinute <= 0 {
		t.Errorf("result = %+v", r)
	}
	for i := range 5 {
		node := filepath.Join(dir, "kept/nodes", fmt.Sprintf("node%04d.demo.muster", i+1))
		openssl(t, node, "verify", "-x509_strict", "-CAfile", "ca.pem", "-untrusted", "certificate.pem", "certificate.pem")
	}
	if log, err := os.ReadFile(filepath.Join(dir, "kept/agents.log")); err != nil || len(log) == 0 {
		t.Errorf("agents.log: %d bytes, %v", len(log), err)
	}
	table := muster(t, dir, "demo", "--nodes", "2")
	if !regexp.MustCompile(`(?m)^provisioned +2 of 2 nodes, in the fleet over mutual TLS$`).MatchString(table) || strings.Contains(table, "\x1b") {
		t.Errorf("table:\n%s", table)
	}
	cmd := command(t, "demo", "--nodes", "0")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("demo of no nodes: %v", err)
	}
}

// opensslToken signs claims with openssl and base64, without anything of ours.
func opensslToken(t *testing.T, dir string, claims map[string]any) string {
	t.Helper()
	b, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS512","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(b)
	write(t, filepath.Join(dir, "input"), input)
	openssl(t, dir, "dgst", "-sha512", "-sign", "prov-key.pem", "-passin", "pass:hunter2", "-out", "signature", "input")
	signature, err := os.ReadFile(filepath.Join(dir, "signature"))
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature) + "\n"
}

// muster runs a verb to its end and returns its standard output.
func muster(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("muster %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func openssl(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, path, old, replacement string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%s: %v, want %q in it", path, err, old)
	}
	write(t, path, strings.Replace(string(b), old, replacement, 1))
}

// freePort returns a port of loopback that is not in use: a restarted provisioner must
// come back on the one that its tokens name.
func freePort(t *testing.T) string { t.Helper(); return testproc.FreePort(t) }

// process is a verb that runs until it is stopped.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu
	err error        // set before done is closed
}

// start starts a verb. It is killed when the test ends.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = dir
	return startCommand(t, cmd)
}

// startCommand is [start] of a command that was made already. What it has printed is
// shown when the test has failed.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed:\n%s", p.cmd.Args[1:], p.output())
		}
	})
	return p
}

// Write collects what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// noSecrets looks for the shared secret of a token, and for the beginning of a
// token that muster or openssl signed, in what processes have printed. Three
// letters of it, "eyJ", may be anywhere in a random id.
func noSecrets(t *testing.T, ps ...*process) {
	t.Helper()
	for _, p := range ps {
		if out := p.output(); strings.Contains(out, "toomanysecrets") || strings.Contains(out, "eyJhbGci") {
			t.Errorf("a secret in the log of %s:\n%s", p.cmd.Args[1:], out)
		}
	}
}

// waitFor waits until the process has printed what matches.
func (p *process) waitFor(pattern string) {
	p.t.Helper()
	want := regexp.MustCompile(pattern)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !want.MatchString(p.output()) {
		select {
		case <-tick.C:
		case <-p.done: // all that it printed is here now
			if want.MatchString(p.output()) {
				return
			}
			p.t.Fatalf("%s ended: %v", p.cmd.Args[1:], p.err)
		case <-deadline:
			p.t.Fatalf("%s does not print %q", p.cmd.Args[1:], pattern)
		}
	}
}

// stop ends the process as systemd does, and wants status 0.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	p.ends()
}

// ends waits until the process, which was told to, has ended, and wants status 0.
func (p *process) ends() {
	p.t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s ended with %v", p.cmd.Args[1:], p.err)
		}
	case <-time.After(patience):
		p.t.Errorf("%s does not end", p.cmd.Args[1:])
	}
}
