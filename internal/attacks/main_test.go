package attacks_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/jwt"
)

// patience bounds each wait. It is far longer than needed, since machines may be slow.
const patience = 60 * time.Second

// work is the directory of the programs under test.
var work string

func TestMain(m *testing.M) {
	var err error
	if work, err = os.MkdirTemp("", "muster-attacks-"); err != nil {
		panic(err)
	}
	m.Run()
	_ = os.RemoveAll(work)
}

// programs builds the programs once for all tests, and returns their directory.
var programs = sync.OnceValues(func() (string, error) { return work, testproc.Build(work) })

// program returns the path of a program.
func program(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs and starts them")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// within returns a context for one step of a test.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline, again := time.After(patience), time.NewTicker(10*time.Millisecond)
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

// output returns what the process has printed so far, on both streams.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// launch starts a program in dir.
func launch(t testing.TB, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program(t, name), args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, last(p.output(), 8000))
		}
	})
	return p
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// signal sends a signal; a process that has ended ignores it.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// exit waits for the end and returns the exit status, -1 after a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v did not end within %v", p.cmd.Args, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor waits until the process has printed text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%v prints %q", p.cmd.Args, text), func() bool {
		select {
		case <-p.done:
			if !strings.Contains(p.output(), text) {
				p.t.Fatalf("%v ended before it printed %q:\n%s", p.cmd.Args, text, last(p.output(), 8000))
			}
		default:
		}
		return strings.Contains(p.output(), text)
	})
}

// A target is an installation under attack, as `muster provisioner init` makes it: a provisioner process with its own
// broker and store, and the API and console over HTTPS.
type target struct {
	t           testing.TB
	dir         string // of the commands; the installation is in dir/prov
	broker, api string // HOST:PORT
	signer      crypto.Signer
	p           *process // nil before start
}

// install makes an installation without starting it. Its policy admits the holders of tokens under every new name.
func install(t testing.TB) *target {
	t.Helper()
	tg := &target{
		t:      t,
		dir:    t.TempDir(),
		broker: net.JoinHostPort("localhost", testproc.FreePort(t)),
		api:    net.JoinHostPort("localhost", testproc.FreePort(t)),
	}
	_, port, _ := net.SplitHostPort(tg.broker)
	tg.must("provisioner", "init", "prov", "--host", "broker.attacks.test", "--trust-domain", "attacks.test",
		"--broker-name", "localhost", "--broker-address", "127.0.0.1", "--listen", "127.0.0.1:"+port,
		"--trust-first-use")
	_, port, _ = net.SplitHostPort(tg.api)
	tg.edit("provisioner.yaml", "\napi:\n",
		"\napi:\n  listen: 127.0.0.1:"+port+"\n  names: [localhost]\n  addresses: [127.0.0.1]\n")
	key, err := jwt.ParsePrivateKey([]byte(tg.read("signer-key.pem")), nil)
	if err != nil {
		t.Fatal(err)
	}
	tg.signer = key
	return tg
}

// newTarget makes an installation and starts it.
func newTarget(t testing.TB) *target {
	t.Helper()
	tg := install(t)
	tg.start()
	return tg
}

// path returns the path of a file of the installation.
func (tg *target) path(name string) string { return filepath.Join(tg.dir, "prov", name) }

func (tg *target) read(name string) string {
	tg.t.Helper()
	b, err := os.ReadFile(tg.path(name))
	if err != nil {
		tg.t.Fatal(err)
	}
	return string(b)
}

func (tg *target) write(name, content string) {
	tg.t.Helper()
	if err := os.WriteFile(tg.path(name), []byte(content), 0o600); err != nil {
		tg.t.Fatal(err)
	}
}

// edit replaces text that stands in a file once.
func (tg *target) edit(name, old, replacement string) {
	tg.t.Helper()
	text := tg.read(name)
	if strings.Count(text, old) != 1 {
		tg.t.Fatalf("%s has %q %d times, want once", name, old, strings.Count(text, old))
	}
	tg.write(name, strings.Replace(text, old, replacement, 1))
}

// muster runs a verb to its end, and returns what it printed on both streams, and the error of its exit status.
func (tg *target) muster(args ...string) (string, error) {
	tg.t.Helper()
	cmd := exec.CommandContext(within(tg.t), program(tg.t, "muster"), args...)
	cmd.Dir = tg.dir
	cmd.Env = append(os.Environ(), "MUSTER_CONFIG=prov/provisioner.yaml")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is muster for verbs that succeed.
func (tg *target) must(args ...string) string {
	tg.t.Helper()
	out, err := tg.muster(args...)
	if err != nil {
		tg.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// list runs a verb that lists, and decodes its JSON into v.
func (tg *target) list(v any, args ...string) {
	tg.t.Helper()
	if out := tg.must(append(args, "-o", "json")...); json.Unmarshal([]byte(out), v) != nil {
		tg.t.Fatalf("muster %s: no JSON: %s", strings.Join(args, " "), out)
	}
}

// run starts the provisioner without waiting for it.
func (tg *target) run() {
	tg.t.Helper()
	tg.p = launch(tg.t, tg.dir, "muster", "provisioner", "run", "--config", "prov/provisioner.yaml")
}

// start starts the provisioner and waits until it serves.
func (tg *target) start() {
	tg.t.Helper()
	tg.run()
	tg.p.waitFor("provisioner is serving")
}

// stop ends the provisioner in order, with SIGTERM.
func (tg *target) stop() {
	tg.t.Helper()
	tg.p.signal(syscall.SIGTERM)
	if status := tg.p.exit(); status != 0 {
		tg.t.Fatalf("the provisioner ended with %d after SIGTERM", status)
	}
}

// kill ends the provisioner as a power cut would.
func (tg *target) kill() {
	tg.t.Helper()
	tg.p.signal(syscall.SIGKILL)
	tg.p.exit()
}

// token signs a token for the broker. It has neither seal nor ca unless edit adds them.
func (tg *target) token(edit func(*jwt.Claims)) string {
	tg.t.Helper()
	c := jwt.Claims{
		Token:   "attacked",
		Purpose: jwt.Purpose,
		Default: true,
		Brokers: "nats://" + tg.broker,
	}
	if edit != nil {
		edit(&c)
	}
	text, err := jwt.Sign(tg.signer, c)
	if err != nil {
		tg.t.Fatal(err)
	}
	return text
}

// dial connects as a node that presents a token.
func (tg *target) dial(token string, opts ...nats.Option) *nats.Conn {
	tg.t.Helper()
	nc, err := simnode.Dial("nats://"+tg.broker, token, opts...)
	if err != nil {
		tg.t.Fatal(err)
	}
	tg.t.Cleanup(nc.Close)
	return nc
}

// ask sends a request and returns the reply.
func (tg *target) ask(nc *nats.Conn, r *wire.EnrollRequest) *wire.Reply {
	tg.t.Helper()
	reply, err := simnode.Enroll(within(tg.t), nc, r)
	if err != nil {
		tg.t.Fatal(err)
	}
	return reply
}

// node returns a node with a new key.
func (tg *target) node(identity, token string) *simnode.Node {
	tg.t.Helper()
	n, err := simnode.New(identity, token)
	if err != nil {
		tg.t.Fatal(err)
	}
	return n
}

// provision enrolls an honest node and confirms it.
func (tg *target) provision(identity string) (*simnode.Node, *wire.Enrolled) {
	tg.t.Helper()
	n := tg.node(identity, tg.token(nil))
	nc := tg.dial(n.Token)
	reply := tg.ask(nc, n.Request())
	if reply.Enrolled == nil {
		tg.t.Fatalf("%s: %+v", identity, reply.Refusal)
	}
	applied, err := n.Confirm(reply.Enrolled)
	if err != nil {
		tg.t.Fatal(err)
	}
	if r, err := simnode.Apply(within(tg.t), nc, applied); err != nil || r.Applied == nil {
		tg.t.Fatalf("%s: applied: %+v, %v", identity, r, err)
	}
	return n, reply.Enrolled
}

// identities returns the nodes on record, by their names.
func (tg *target) identities() []string {
	tg.t.Helper()
	return strings.Fields(tg.must("node", "list", "-o", "name"))
}
