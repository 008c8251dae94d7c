package chaos_test

import (
	"bytes"
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

// patience bounds every wait for something that must come; at full size it is
// longer, see TestMain.
var patience = 2 * time.Minute

// tick is how often a condition is looked at that nothing announces.
const tick = 10 * time.Millisecond

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline, again := time.After(patience), time.NewTicker(tick)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// hold lets a fault last: it is the one thing here that is a matter of time.
func hold(d time.Duration) { <-time.After(d) }

// A process is a program that a test has started: a provisioner, a broker, an
// agent, a driver of nodes. It is killed when the test ends.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // guarded by mu: what it printed since it started
	err error        // set before done is closed
}

// start starts a program whose output is also appended to dir/name.log.
func start(t *testing.T, dir, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, done: make(chan struct{}), cmd: exec.Command(args[0], args[1:]...)}
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	w := &tee{p: p, log: log}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = log.Close()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// tee keeps what a process prints, and writes it to its log.
type tee struct {
	p   *process
	log *os.File
}

func (w *tee) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	w.p.out.Write(b)
	w.p.mu.Unlock()
	return w.log.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// ended reports whether the process is no more.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitFor waits until the process has printed text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	eventually(p.t, p.name+" prints "+text, func() bool {
		if strings.Contains(p.output(), text) {
			return true
		}
		if p.ended() {
			p.t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.output())
		}
		return false
	})
}

// signal sends a signal to the process alone.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process by SIGKILL, if it has not ended yet.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the process as systemd does, and wants status 0.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
}
