package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// heapRoom is how much a process may allocate between two collections of
	// garbage, whatever is alive. Enrolling a node makes 130 kB of garbage and
	// leaves 2 kB, so that with Go's own pace, as much as is alive (40 MB), a busy
	// provisioner collects several times a second: a tenth of its CPU time
	// (measured; docs/adr/0023). Chosen: with more little is won, and it is a fifth
	// of the memory that 10,000 connected nodes may take.
	heapRoom = 128 << 20

	// defaultPace is GOGC's default, in percent of what is alive: never slower.
	defaultPace = 100
)

// MakeHeapRoom has the collector of garbage wait until [heapRoom] is allocated
// where that is more than what is alive, for as long as the process lives. A process with
// much alive is collected at Go's own pace and so takes no more memory than it would. It is
// for main to call, once: there is one collector. Who has set GOGC keeps it.
func MakeHeapRoom() {
	if os.Getenv("GOGC") == "" {
		makeRoom()
	}
}

// makeRoom sets the pace by what is alive, now and after each collection.
func makeRoom() {
	alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(alive)
	debug.SetGCPercent(pace(alive[0].Value.Uint64()))
	// Nothing refers to the mark, so that the next collection finds it.
	mark := &struct{ next *byte }{}
	runtime.AddCleanup(mark, func(struct{}) { makeRoom() }, struct{}{})
}

// pace returns the GOGC at which heapRoom or as much as is alive may be
// allocated before the next collection, whichever is more.
func pace(alive uint64) int {
	return int(max(defaultPace, heapRoom*100/max(alive, 4<<20))) // 4 MiB is the least heap that Go collects
}
