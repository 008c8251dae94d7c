package chaos_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
)

// patience bounds every wait; at full size it is longer, see TestMain.
var patience = 2 * time.Minute

// tick is the interval of polls.
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

// hold lets a fault last.
func hold(d time.Duration) { <-time.After(d) }

// A process is a program that a test started. It is killed when the test ends.
type process struct {
	t    *testing.T
	name string
	done chan struct{} // closed when it has ended for good
	quit chan struct{} // closed when the test ends it

	mu  sync.Mutex
	cmd *exec.Cmd    // guarded by mu: a supervised process has several, one after the other
	out bytes.Buffer // guarded by mu: output since its first start
	err error        // set before done is closed
}

// start starts a program whose output is also appended to dir/name.log.
func start(t *testing.T, dir, name string, env []string, args ...string) *process {
	t.Helper()
	p := launch(t, dir, name, env, args)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// launch makes a process and starts its program for the first time.
func launch(t *testing.T, dir, name string, env, args []string) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, done: make(chan struct{}), quit: make(chan struct{})}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	w := &tee{p: p, log: log}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		_ = log.Close()
	})
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

// waitFor waits until the process has printed one of the texts.
func (p *process) waitFor(texts ...string) {
	p.t.Helper()
	eventually(p.t, p.name+" prints "+strings.Join(texts, " or "), func() bool {
		ended := p.ended() // before the look: a process may print the text as the last thing it does
		printed := p.output()
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(printed, text) }) {
			return true
		}
		if ended {
			p.t.Fatalf("%s ended: %v\n%s", p.name, p.err, printed)
		}
		return false
	})
}

// signal sends a signal to the process alone.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// end sends a signal that ends the process for good.
func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.quitting() {
		close(p.quit)
	}
	_ = p.cmd.Process.Signal(s) // fails if it has ended
}

// quitting reports whether the test is ending the process.
func (p *process) quitting() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// kill ends the process by SIGKILL, if it has not ended yet.
func (p *process) kill() {
	p.end(syscall.SIGKILL)
	<-p.done
}

// stop ends the process as systemd does, and expects status 0.
func (p *process) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
}
