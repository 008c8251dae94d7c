// Package certmonger_test has Debian's certmonger, on a bus of its own, get certificates through a node's agent, with
// `make ci-install`. It also runs examples/service-certificates.
package certmonger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
)

// patience bounds each wait.
const patience = 2 * time.Minute

// work is the directory of the programs under test.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "muster-certmonger-"); err != nil {
		panic(err)
	}
	m.Run()
	_ = os.RemoveAll(work)
}

// build builds muster and muster-server into work.
var build = sync.OnceValue(func() error { return testproc.Build(work) })

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline, again := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// A process is a program that a test started. It is killed when the test ends.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// output returns what the process has printed so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *process) end(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal) // fails if it has ended
	<-p.done
}

// A node is an installation of muster, a node of it with its agent, and a certmonger of that node.
type node struct {
	*testing.T
	dir         string
	env         []string // of all programs
	port        string   // of the broker
	provisioner *process
	agent       *process
	certmonger  *process
}

const identity = "web1.example.net"

// rules are the policy for service certificates.
const rules = `package muster.certificate

default allow := false

allow if {
	count(deny) == 0
	not approval
}

approval if {
	input.certificate.profile == "guarded"
	count(deny) == 0
}

reasons contains "an operator looks at guarded certificates" if approval

deny contains sprintf("%s may not have the name %s", [input.identity, name]) if {
	some name in input.csr.dns_names
	not endswith(name, concat("", [".", input.identity]))
}

certificate := {"ttl": "7300s", "dns_names": input.csr.dns_names, "ip_addresses": input.csr.ip_addresses}
`

const bus = `<busconfig>
  <type>custom</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// newNode starts everything. faster is how much faster than true certmonger's clock runs.
func newNode(t *testing.T, faster int) *node {
	t.Helper()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	n := &node{T: t, dir: dir, port: testproc.FreePort(t), env: append(os.Environ(),
		"PATH="+work+":"+os.Getenv("PATH"),
		"MUSTER_CONFIG="+dir+"/prov/provisioner.yaml",
		"DBUS_SYSTEM_BUS_ADDRESS=unix:path="+dir+"/bus",
		"CERTMONGER_SYSTEM_LOCK_FILE="+dir+"/lock",
	)}
	for _, name := range []string{"config", "cas", "requests", "local_ca", "tmp"} {
		n.env = append(n.env, "CERTMONGER_"+strings.ToUpper(name)+"_DIR="+n.makeDir("certmonger/"+name))
	}
	n.env = append(n.env, "CERTMONGER_TMPDIR="+n.path("certmonger/tmp"))

	n.run("muster", "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen",
		"127.0.0.1:"+n.port)
	n.write("prov/policy/certificate.rego", rules)
	n.write("prov/secret", "the token's secret\n")
	n.startProvisioner()
	n.run("muster", "jwt", "token.jwt", "prov/signer-key.pem", "--insecure", "--secret-file", "prov/secret", "--default",
		"--urls", "localhost:"+n.port, "--ca", "prov/ca/root.pem", "--identity", identity)
	n.agent = n.launch("muster-server", "run", "--token-file", "token.jwt", "--ssl-dir", n.path("ssl"), "--config",
		n.path("etc/server.conf"), "--identity", identity)
	n.waitFor(n.agent, "connected to the fleet")

	n.write("bus.conf", fmt.Sprintf(bus, n.path("bus")))
	n.launch("dbus-daemon", "--config-file="+n.path("bus.conf"), "--nofork", "--nopidfile")
	eventually(n, "a bus", func() bool { _, err := os.Stat(n.path("bus")); return err == nil })
	n.run("muster-server", "certmonger", "--install", "--ssl-dir", n.path("ssl"))
	clock := []string{"env"}
	if faster > 1 {
		n.write("certmonger/config/certmonger.conf", "[defaults]\nmax_key_use_count = 1\n")
		clock = append(clock, "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1", fmt.Sprintf("FAKETIME=+0 x%d", faster))
	}
	n.certmonger = n.launch(append(clock, "certmonger", "-S", "-n", "-d", "1")...)
	eventually(n, "certmonger knows the authority", func() bool {
		out, err := n.try("getcert", "list-cas", "-c", "muster")
		return err == nil && strings.Contains(out, "CA 'muster'")
	})
	return n
}

func (n *node) startProvisioner() {
	n.Helper()
	n.provisioner = n.launch("muster", "provisioner", "run")
	n.waitFor(n.provisioner, "provisioner is serving")
}

// waitFor waits until a process has printed text.
func (n *node) waitFor(p *process, text string) {
	n.Helper()
	eventually(n, fmt.Sprintf("%s prints %q", p.cmd.Args[0], text), func() bool {
		select {
		case <-p.done:
			n.Fatalf("%s ended: %s", p.cmd, p.output())
		default:
		}
		return strings.Contains(p.output(), text)
	})
}

func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(n.Context(), args[0], args[1:]...)
	if path := filepath.Join(work, args[0]); strings.HasPrefix(args[0], "muster") {
		cmd = exec.CommandContext(n.Context(), path, args[1:]...)
	}
	cmd.Dir, cmd.Env = n.dir, n.env
	return cmd
}

// launch starts a program.
func (n *node) launch(args ...string) *process {
	n.Helper()
	p := &process{cmd: n.command(args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.Cancel = func() error { return nil } // the cleanup ends it
	if err := testproc.Start(p.cmd); err != nil {
		n.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	n.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if out := p.output(); n.Failed() {
			n.Logf("%s printed:\n%s", args[0], out[max(0, len(out)-6000):])
		}
	})
	return p
}

// try runs a command in the node's directory.
func (n *node) try(args ...string) (out string, err error) {
	n.Helper()
	b, err := n.command(args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, b)
	}
	return string(b), err
}

// run is try for commands that succeed.
func (n *node) run(args ...string) string {
	n.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// status runs a command that ends with a status.
func (n *node) status(want int, args ...string) string {
	n.Helper()
	out, err := n.try(args...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		n.Fatal(err)
	}
	if got != want {
		n.Fatalf("%s ended with %d, want %d:\n%s", strings.Join(args, " "), got, want, out)
	}
	return out
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) makeDir(name string) string {
	n.Helper()
	if err := os.MkdirAll(n.path(name), 0o700); err != nil {
		n.Fatal(err)
	}
	return n.path(name)
}

func (n *node) write(name, content string) {
	n.Helper()
	n.makeDir(filepath.Dir(name))
	if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n *node) contents(name string) []byte {
	n.Helper()
	b, err := os.ReadFile(n.path(name))
	if err != nil {
		n.Fatal(err)
	}
	return b
}
