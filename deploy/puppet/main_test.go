// Package puppet_test has unmodified Puppet agents get certificates and configurations from muster, with `make
// ci-install`.
package puppet_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
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

// patience bounds each wait. An agent needs five seconds of a core for its start, its key and its facts.
const patience = 2 * time.Minute

// work is the directory of the programs under test.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "muster-puppet-"); err != nil {
		panic(err)
	}
	m.Run()
	_ = os.RemoveAll(work)
}

// builtMuster returns the path of muster. MUSTER names an existing program.
var builtMuster = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MUSTER"); path != "" {
		return path, nil
	}
	return filepath.Join(work, "muster"), testproc.Build(work)
})

// Agents under test.
const (
	older = "7.23"
	newer = "8.11"
)

// unpacked is the directory of agent 8.11. PUPPET8 names it, or an archive with it.
var unpacked = sync.OnceValues(func() (string, error) {
	path := os.Getenv("PUPPET8")
	if path == "" {
		path = "../../../shared/peers/puppet-8.11.tar.xz"
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("no Puppet agent 8: set PUPPET8 to its source, or to an archive of that: %w", err)
	case info.IsDir():
		return filepath.Abs(path)
	}
	if out, err := exec.Command("tar", "-xJf", path, "-C", work, "--strip-components=1").CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", path, err, out)
	}
	return work, nil
})

// puppetCommand returns the command of an agent.
func puppetCommand(t testing.TB, version string) []string {
	t.Helper()
	if version == older {
		return []string{"puppet"}
	}
	dir, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"ruby", "-I", filepath.Join(dir, "lib"), filepath.Join(dir, "bin", "puppet")}
}

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
	t    testing.TB
	name string
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

// launch starts a program in dir.
func launch(t testing.TB, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if out := p.output(); t.Failed() {
			t.Logf("%s printed:\n%s", name, out[max(0, len(out)-6000):])
		}
	})
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails if it has ended
	<-p.done
}

// exit waits for the end and returns the exit status.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end within %v", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor waits until the process has printed text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s prints %q", p.name, text), func() bool {
		select {
		case <-p.done:
			if !strings.Contains(p.output(), text) {
				p.t.Fatalf("%s ended before it printed %q", p.name, text)
			}
		default:
		}
		return strings.Contains(p.output(), text)
	})
}

// A fleet is an installation of muster in dir/prov, and its Puppet agents.
type fleet struct {
	*testing.T
	program string // muster
	dir     string
	port    string // of the gateway
	api     string // URL of the HTTPS API
	running *process
}

// newFleet makes an installation with a gateway, and starts it. rules are added to the policy.
func newFleet(t *testing.T, rules string) *fleet {
	t.Helper()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	if err := os.MkdirAll("/etc/muster", 0o755); err != nil { // agents get one of their own there
		t.Fatal(err)
	}
	program, err := builtMuster()
	if err != nil {
		t.Fatal(err)
	}
	api := testproc.FreePort(t)
	f := &fleet{T: t, program: program, dir: t.TempDir(), port: testproc.FreePort(t), api: "https://localhost:" + api}
	f.muster("provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen",
		"127.0.0.1:"+testproc.FreePort(t))
	f.muster("ca", "puppet")
	f.edit("prov/provisioner.yaml", "\npuppet:\n", `
puppet:
  listen: 127.0.0.1:`+f.port+`
  names: [localhost, 127.0.0.1]
  bundle: puppet-ca/bundle.pem
  key: puppet-ca/key.pem
  root_crl: puppet-ca/root-crl.pem
`)
	f.edit("prov/provisioner.yaml", "\napi:\n", `
api:
  listen: 127.0.0.1:`+api+`
  names: [localhost]
`)
	f.write("prov/secret", "the token's secret\n")
	f.write("prov/policy/puppet.rego", `package muster.enroll

configuration := {"identity": input.identity, "brokers": "nats://broker.example.net:4222"} if {
	input.source.protocol == "puppet"
	not startswith(input.identity, "plain")
}
`+rules)
	f.start()
	return f
}

// start starts the provisioner, and waits until it serves.
func (f *fleet) start() {
	f.Helper()
	f.running = launch(f, f.dir, "muster", f.program, "provisioner", "run", "--config", "prov/provisioner.yaml")
	f.running.waitFor("provisioner is serving")
}

// try runs a command in the directory of the fleet.
func (f *fleet) try(args ...string) (stdout string, err error) {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), args[0], args[1:]...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "MUSTER_CONFIG=prov/provisioner.yaml")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}

// run is try for commands that succeed.
func (f *fleet) run(args ...string) string {
	f.Helper()
	out, err := f.try(args...)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// muster runs a verb of muster.
func (f *fleet) muster(args ...string) string {
	f.Helper()
	return f.run(append([]string{f.program}, args...)...)
}

// read decodes the JSON that a verb prints.
func (f *fleet) read(v any, args ...string) {
	f.Helper()
	if out := f.muster(append(args, "-o", "json")...); json.Unmarshal([]byte(out), v) != nil {
		f.Fatalf("muster %s: no JSON: %s", strings.Join(args, " "), out)
	}
}

// An event is what `muster events` shows.
type event struct {
	Type    string `json:"type"`
	Subject string `json:"subject"`
	Data    struct {
		Code   string `json:"code"`
		Cause  string `json:"cause"`
		Reason string `json:"reason"`
		Serial string `json:"serial"`
	} `json:"data"`
}

func (f *fleet) events(args ...string) []event {
	f.Helper()
	var list struct {
		Events []event `json:"events"`
	}
	f.read(&list, append([]string{"events"}, args...)...)
	return list.Events
}

// waitRefused waits for an event about a refused agent.
func (f *fleet) waitRefused(code, name string) {
	f.Helper()
	eventually(f, fmt.Sprintf("%s is refused with %s", name, code), func() bool {
		return len(f.events("--code", code, "--node", name)) > 0
	})
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fleet) write(name, content string) {
	f.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) contents(name string) string {
	f.Helper()
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		f.Fatal(err)
	}
	return string(b)
}

// edit replaces text that stands in a file once.
func (f *fleet) edit(name, old, replacement string) {
	f.Helper()
	text := f.contents(name)
	if strings.Count(text, old) != 1 {
		f.Fatalf("%s has %q %d times, want once", name, old, strings.Count(text, old))
	}
	f.write(name, strings.Replace(text, old, replacement, 1))
}

// A record is what `muster node show` shows of a node.
type record struct {
	Record struct {
		State    string   `json:"state"`
		Protocol string   `json:"protocol"`
		Current  *issued  `json:"current"`
		Next     *issued  `json:"next"`
		Lineage  []string `json:"lineage"`
	} `json:"record"`
}

type issued struct {
	Serial string `json:"serial"`
	DER    []byte `json:"der"`
}

func (f *fleet) record(name string) *record {
	f.Helper()
	var r record
	f.read(&r, "node", "show", name)
	return &r
}

// An agent is a Puppet agent on a machine of its own: a directory, a host name, processes and /etc/muster.
type agent struct {
	*fleet
	version string
	name    string
	dir     string // below the fleet's
}

// machine returns an agent without a key. attributes are its csr_attributes.yaml.
func (f *fleet) machine(version, name, attributes string) *agent {
	f.Helper()
	a := &agent{fleet: f, version: version, name: name, dir: "agents/" + name}
	a.write(a.dir+"/conf/puppet.conf", fmt.Sprintf(`[main]
certname = %s
server = localhost
serverport = %s
vardir = %[3]s
ssldir = %[3]s/ssl
logdir = %[3]s/log
rundir = %[3]s/run
publicdir = %[3]s/public
keylength = 2048
`, name, f.port, f.path(a.dir+"/var")))
	if err := os.MkdirAll(a.path(a.dir+"/muster"), 0o755); err != nil {
		a.Fatal(err)
	}
	if attributes != "" {
		a.write(a.dir+"/conf/csr_attributes.yaml", attributes)
	}
	return a
}

// token returns the csr_attributes.yaml of an agent that shows a token.
func token(text string) string {
	return "custom_attributes:\n  1.2.840.113549.1.9.7: \"" + strings.TrimSpace(text) + "\"\n"
}

func (a *agent) command(args ...string) []string {
	isolated := []string{"unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
		`hostname "$0" && mount --bind "$1" /etc/muster && shift && exec "$@"`, a.name, a.path(a.dir + "/muster")}
	isolated = append(isolated, puppetCommand(a, a.version)...)
	return append(append(isolated, args...), "--confdir", a.path(a.dir+"/conf"), "--color", "false")
}

// puppet runs a command of the agent, and returns what it prints and its status.
func (a *agent) puppet(args ...string) (out string, status int) {
	a.Helper()
	cmd := exec.CommandContext(a.Context(), "sh", append([]string{"-c", `exec "$@" 2>&1`, "sh"}, a.command(args...)...)...)
	b, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// must runs a command of the agent that ends with a status.
func (a *agent) must(want int, args ...string) string {
	a.Helper()
	out, status := a.puppet(args...)
	if status != want {
		a.Fatalf("%s: puppet %s ended with %d, want %d:\n%s", a.name, strings.Join(args, " "), status, want, out)
	}
	return out
}

// starts runs a command of the agent in the background.
func (a *agent) starts(args ...string) *process {
	a.Helper()
	return launch(a, a.fleet.dir, a.name, a.command(args...)...)
}

// once checks that the agent's certificate is the one on record, and the only one that was issued.
func (a *agent) once(certificate *x509.Certificate) {
	a.Helper()
	r := a.record(a.name).Record
	live := r.Next
	if live == nil {
		live = r.Current
	}
	if r.Protocol != "puppet" || live == nil || r.Next != nil && r.Current != nil || len(r.Lineage) != 1 ||
		!bytes.Equal(live.DER, certificate.Raw) {
		a.Errorf("%s: record %+v, and on its disk %x", a.name, r, certificate.SerialNumber)
		return
	}
	for _, e := range a.events("--node", a.name, "--type", "node.enrolled") {
		if e.Data.Serial != live.Serial {
			a.Errorf("%s: also issued %s", a.name, e.Data.Serial)
		}
	}
}
