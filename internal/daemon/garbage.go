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

	// memoryGoal is what the process stays below while what is alive leaves room
	// for it, by collecting sooner. 10,000 nodes connected over mutual TLS keep
	// 300 MB of heap and 130 MB of stacks alive; at Go's own pace, which doubles
	// the heap, that was 710 MB, and with a goal 550 MB at hardly more collections
	// (measured, BenchmarkConnected of package broker).
	memoryGoal = 560 << 20

	// goalShare is how much of what is alive there is room for at least, in
	// percent, where that takes more than the goal: a collector that ran all the
	// time would be worse than the memory.
	goalShare = 30
)

// MakeHeapRoom has the collector of garbage wait until [heapRoom] is allocated
// where that is more than what is alive, for as long as the process lives, and
// collect sooner than Go does where that keeps the process below [memoryGoal]. It
// is for main to call, once: there is one collector. Who has set GOGC or GOMEMLIMIT
// keeps both.
func MakeHeapRoom() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		makeRoom()
	}
}

// makeRoom sets the pace by what is alive, now and after each collection.
func makeRoom() {
	alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(alive)
	heap, stacks := alive[0].Value.Uint64(), alive[1].Value.Uint64()
	debug.SetGCPercent(pace(heap))
	debug.SetMemoryLimit(limit(heap + stacks))
	// Nothing refers to the mark, so that the next collection finds it.
	mark := &struct{ next *byte }{}
	runtime.AddCleanup(mark, func(struct{}) { makeRoom() }, struct{}{})
}

// pace returns the GOGC at which heapRoom or as much as is alive may be
// allocated before the next collection, whichever is more.
func pace(alive uint64) int {
	return int(max(defaultPace, heapRoom*100/max(alive, 4<<20))) // 4 MiB is the least heap that Go collects
}

// limit returns the memory that the process is to stay below.
func limit(alive uint64) int64 {
	return max(memoryGoal, int64(alive/100*(100+goalShare)))
}
