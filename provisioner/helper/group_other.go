//go:build !linux

package helper

import "os/exec"

// A group is one process: provisioners run on Linux, and elsewhere a helper is
// killed alone. What it started can hold its output open for [drainDelay].
type group struct{ cmd *exec.Cmd }

// newGroup returns the group of the process of cmd.
func newGroup(cmd *exec.Cmd) *group { return &group{cmd: cmd} }

// kill kills the process.
func (g *group) kill() error { return g.cmd.Process.Kill() }

// end does nothing; cmd.Wait waits.
func (g *group) end() {}
