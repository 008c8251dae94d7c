// Package testproc starts processes for tests, and has the programs that they run.
package testproc

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter takes what is to be started to the one thread that starts children.
var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// Start starts cmd so that it is killed when this process ends, in whatever
// way: a test that panics cleans up nothing.
//
// Linux does so when the thread ends that has started the child. Threads of Go's
// end before the process does, those with a goroutine that has locked them (in
// package chaos, to go to another network). So all children are started by one
// thread that never ends.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
