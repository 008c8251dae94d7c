package bench

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	schedNormal = unix.SCHED_NORMAL
	schedBatch  = unix.SCHED_BATCH
)

// schedule sets the policy of all threads of this process. It does so twice, since a thread not yet changed may have
// started a new one.
func schedule(policy uint32) {
	for range 2 {
		threads, _ := os.ReadDir("/proc/self/task") // without it nothing changes
		for _, t := range threads {
			tid, _ := strconv.Atoi(t.Name())
			if attr, err := unix.SchedGetAttr(tid, 0); err == nil {
				attr.Policy = policy
				_ = unix.SchedSetAttr(tid, attr, 0)
			}
		}
	}
}
