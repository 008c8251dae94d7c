package helper

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A group is the process group that a command leads.
type group struct {
	cmd *exec.Cmd

	mu    sync.Mutex
	ended bool // guarded by mu; the leader's number may be somebody else's soon
}

// newGroup makes the process of cmd, which has not been started, the leader of
// a new process group.
func newGroup(cmd *exec.Cmd) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &group{cmd: cmd}
}

// kill kills all of the group, or does nothing once it has ended.
func (g *group) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return os.ErrProcessDone
	}
	return unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
}

// end waits until the leader has ended and kills what is left of its group. It
// leaves the leader to cmd.Wait: until then its number is taken, so no other
// group can be hit.
func (g *group) end() {
	for {
		err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = g.kill() // as a rule there is nobody left but the leader
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}
