// Package testproc builds and starts processes for tests.
package testproc

import (
	"cmp"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter runs functions on the one thread that starts children.
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

// Start starts cmd so that the kernel kills it when this process ends, even by a panic.
//
// Linux kills such a child when the thread that started it ends, and Go may end threads early (package chaos locks some
// to change the network). Therefore one permanent thread starts all children.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, &syscall.SysProcAttr{})
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
