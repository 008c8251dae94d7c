package testproc_test

import (
	"bufio"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"muster/internal/testproc"
)

func TestChildrenOutliveThreads(t *testing.T) {
	t.Parallel()
	const children = 8
	var all sync.WaitGroup
	for range children {
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := testproc.Start(cmd); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() {
			lines := bufio.NewReader(out)
			for range 100 { // a signal takes a moment
				if _, err := in.Write([]byte("still there\n")); err != nil {
					t.Errorf("child ended: %v", err)
					break
				}
				if _, err := lines.ReadString('\n'); err != nil {
					t.Errorf("child ended: %v", err)
					break
				}
			}
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("child: %v", err)
			}
		})
	}
	all.Wait()
}
