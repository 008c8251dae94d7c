package broker_test

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"muster/provisioner/broker"
)

// TestALockThatIsTakenAwayKeepsOthersOff has many take a lock, remove its file as a
// restore that fails does, and give it free: never do two of them have it.
func TestALockThatIsTakenAwayKeepsOthersOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var holders, taken atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 3000 {
				release, err := broker.Lock(dir)
				if err != nil {
					continue
				}
				if n := holders.Add(1); n > 1 {
					t.Errorf("%d have the lock", n)
				}
				runtime.Gosched()
				taken.Add(1)
				holders.Add(-1) // who comes now may have it: what follows touches nothing else
				if err := os.Remove(broker.LockFile(dir)); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	all.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got the lock")
	}
}
