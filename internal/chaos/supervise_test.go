package chaos_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testproc"
)

// notRestarted are the statuses after which the unit does not restart (RestartPreventExitStatus): configuration,
// damage.
var notRestarted = []int{2, 78}

// supervise is start for a program with a unit, which restarts it when it ends. A status that the unit does not
// restart fails the test.
func supervise(t *testing.T, dir, name string, env []string, args ...string) *process {
	t.Helper()
	p := launch(t, dir, name, env, args)
	go func() {
		defer close(p.done)
		for {
			p.err = p.cmd.Wait()
			if p.quitting() {
				return
			}
			if slices.Contains(notRestarted, p.cmd.ProcessState.ExitCode()) {
				t.Errorf("%s ended with %v, which is not restarted: %s", name, p.err, p.lastLine())
				return
			}
			t.Logf("%s ended with %v, and is started again: %s", name, p.err, p.lastLine())
			if !p.restart() {
				return
			}
		}
	}()
	return p
}

// restart starts the program again after the unit's pause; false: the test ends the process.
func (p *process) restart() bool {
	select {
	case <-p.quit:
	case <-time.After(lasting(200*time.Millisecond, 5*time.Second)):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quitting() {
		p.err = nil // it was not running
		return false
	}
	old := p.cmd
	p.cmd = exec.Command(old.Args[0], old.Args[1:]...)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = old.Dir, old.Env, old.Stdout, old.Stderr
	if p.err = testproc.Start(p.cmd); p.err != nil {
		p.t.Errorf("%s is not started again: %v", p.name, p.err)
	}
	return p.err == nil
}

// lastLine returns what the process printed last.
func (p *process) lastLine() string {
	out := strings.TrimSpace(p.output())
	return out[strings.LastIndexByte(out, '\n')+1:]
}
