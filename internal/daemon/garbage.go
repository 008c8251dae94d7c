package daemon

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// A busy process may allocate startShare bytes for each byte with pointers that is alive
	// until it collects garbage, between startRoom and heapRoom, to begin with: a collection
	// takes time by those. Enrolling a node makes 130 kB of garbage and leaves 2 kB, so that
	// with Go's own pace, as much as is alive (40 MB), a busy provisioner collects several
	// times a second: a tenth of its CPU time (measured; docs/adr/0023).
	startShare = 4
	startRoom  = 64 << 20
	heapRoom   = 128 << 20

	// busyHeap is how large the heap of a busy process may become before it collects, as
	// long as there is that room beside what is alive, and the machine has so much to spare.
	// Chosen: with 490 MB a provisioner came to memoryGoal after half a minute, at which Go
	// gives memory back that is then new again; with 300 it collected more (measured).
	busyHeap = 384 << 20

	// growthShare is by how much it becomes larger with each collection: one part in so many
	// of what the collection has to read. To collect costs 1.3 ms a MB of that. Memory that
	// is new to a process costs as much or less, and 4 ms a MB in a guest whose host gives
	// it only then: so growing costs no more than collecting, however short a storm is. A
	// heap that went to busyHeap at once kept the first machines of a storm waiting for a
	// second: half of two cores went into faults of pages (measured; docs/performance.md).
	growthShare = 4

	// leastRoom is what a process at rest may allocate until it collects: one that takes
	// longer than restAfter to allocate that. Both chosen: a collection with 10,000 nodes
	// connected takes 0.15 s of CPU time, 3 % of a core at most.
	leastRoom = 24 << 20
	restAfter = 5 * time.Second

	// collectionsAtRest come before what is free is given back: each halves the stacks
	// that a handshake has made large, and the second empties pools.
	collectionsAtRest = 2

	// giving is how long they take, at most; chosen, 0.15 s each with 10,000 nodes.
	giving = 2 * time.Second

	// recordRoom is how much may be allocated for each byte with pointers that is alive
	// for records, at most; half of it to begin with. A collection takes time by those,
	// 1.3 ms a MB (measured): with a million records, 120 MB, that would be a fifth of two
	// cores at heapRoom, and is 3 % at this.
	recordRoom = 8

	// fewRecordsRoom is how far it may be twice as much. With a million records that are not
	// listed yet, 30 MB, machines enrolled at 92 % of the rate of an empty store without it,
	// and at 95 with it (medians of ten and twelve pairs; docs/performance.md).
	fewRecordsRoom = 512 << 20

	// memoryGoal is what a process stays below while what is alive leaves room
	// for it, by collecting sooner. 10,000 nodes connected over mutual TLS keep
	// 300 MB of heap and 130 MB of stacks alive; at Go's own pace, which doubles
	// the heap, that was 710 MB, and with a goal 550 MB at hardly more collections
	// (measured, BenchmarkHeld of package broker).
	memoryGoal = 560 << 20

	// notHeap is what there is room for beside heap and stacks. Chosen.
	notHeap = memoryGoal / 8

	// goalShare is how much of what is alive there is room for at least, in
	// percent, where that takes more than the goal: a collector that ran all the
	// time would be worse than the memory.
	goalShare = 30

	// pointersPerStack is how much memory with pointers a connection keeps alive for each
	// byte of stack, at most: 23 kB and 13 kB (measured, 10,000 over mutual TLS).
	// ownPointers is what a busy provisioner keeps without any: 15 to 30 MB. What is
	// alive beyond both counts as records.
	pointersPerStack = 2
	ownPointers      = 32 << 20

	// machineShare is the part of the machine's memory that is not taken for
	// speed's sake: one over this.
	machineShare = 4

	// cgroupSpare is the part that stays free, one over this, of the memory that a group of
	// processes may have (cgroups: a container, or MemoryMax of systemd): who takes all of
	// it is killed. Chosen, as others do; what Go does not count is in it.
	cgroupSpare = 10
)

// MakeHeapRoom sets the pace of the collector of garbage until ctx is done. The heap
// of a process that becomes busy grows a little with each collection, up to [busyHeap], and
// further if it has many records or much else that is alive; the collector comes sooner
// where that keeps the process below [memoryGoal]. One at rest has [leastRoom], so that
// the system gets back what it does not need. Where the process may have less memory than
// the machine has, in a container for one, the collector comes as often as it must to stay
// below that.
// It is for main to call, once: there is one collector. Who has set GOGC or
// GOMEMLIMIT keeps both.
func MakeHeapRoom(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	p := &pacer{now: time.Now, machine: machineMemory(), cgroup: cgroupMemory()}
	if p.cgroup > 0 {
		p.machine = min(p.machine, p.cgroup)
	}
	p.collected()
	go p.run(ctx)
}

// A pacer knows when garbage was last collected. It is safe for concurrent use.
type pacer struct {
	now     func() time.Time
	machine uint64 // bytes of memory
	cgroup  uint64 // those that the process may have before it is killed; 0: no bound

	mu      sync.Mutex
	last    time.Time // of the last collection, zero before the first
	resting bool
	heap    uint64    // and stacks: how large they were to become, busy; 0 at rest and at first
	given   time.Time // when what the last busy time left free was given back; zero: not yet
	ours    int       // collections made for that, which are still to be noted
}

// run has a process that was busy collect once more when it rests, and give
// back at once what that frees: else its last room would stay taken until the
// collection that Go makes every two minutes, and a tenth of the heap for ever.
func (p *pacer) run(ctx context.Context) {
	look := time.NewTicker(restAfter)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if p.due() {
				for range collectionsAtRest {
					runtime.GC()
				}
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return
		}
	}
}

// due reports whether the process has come to rest, and has not given back yet what
// it does not need any more. A collection that comes by itself gives nothing back.
func (p *pacer) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.given.IsZero() || now.Sub(p.last) <= restAfter {
		return false
	}
	p.given, p.ours = now, collectionsAtRest+1 // FreeOSMemory makes one more
	return true
}

// collected sets the pace by what is alive, now and after each collection.
func (p *pacer) collected() {
	a := lives()
	debug.SetGCPercent(p.pace(a, p.noted()))
	debug.SetMemoryLimit(limit(a, p.machine, p.cgroup))
	// Nothing refers to the mark, so that the next collection finds it.
	mark := &struct{ next *byte }{}
	runtime.AddCleanup(mark, func(struct{}) { p.collected() }, struct{}{})
}

// noted notes a collection and reports whether the process rests: it took long
// to come to this one.
func (p *pacer) noted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	ours := p.ours > 0 && now.Sub(p.given) < giving // we made it come
	p.ours = max(0, p.ours-1)
	p.resting = ours || !p.last.IsZero() && now.Sub(p.last) > restAfter
	if !p.resting {
		p.given = time.Time{}
	}
	p.last = now
	return p.resting
}

// What is alive in the process, in bytes.
type alive struct {
	heap     uint64
	pointers uint64 // the part of the heap that a collection has to read, with what was made since
	stacks   uint64
}

// lives returns what was alive at the last collection.
func lives() alive {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return alive{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()}
}

// forRecords returns how much may be allocated for the sake of what is alive for
// records.
func (a alive) forRecords() uint64 {
	room := recordRoom * (a.pointers - min(a.pointers, ownPointers+pointersPerStack*a.stacks))
	return max(room, min(2*room, fewRecordsRoom))
}

// pace returns the GOGC at which there is the room that the process needs until
// the next collection. Go counts it in percent of heap and stacks (of the heap
// alone it would be hardly more while busy), of 4 MiB at least.
func (p *pacer) pace(a alive, resting bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heap = p.grown(a); resting {
		p.heap = 0
		return int(max(1, leastRoom*100/max(a.heap+a.stacks, 4<<20)))
	}
	return int((p.heap - a.heap - a.stacks) * 100 / max(a.heap, 4<<20))
}

// grown returns how large heap and stacks of a busy process become before the next
// collection. p.mu is held.
func (p *pacer) grown(a alive) uint64 {
	all := a.heap + a.stacks
	least := all + max(startRoom, min(heapRoom, startShare*a.pointers), a.forRecords()/2)
	most := max(min(busyHeap, p.machine/machineShare), all+a.forRecords())
	return max(least, min(p.heap+a.pointers/growthShare, most))
}

// limit returns the memory that the process is to stay below, on a machine with
// this much, where it may have as much as cgroup says; 0 is no bound.
func limit(a alive, machine, cgroup uint64) int64 {
	all := a.heap + a.stacks
	fast := min(notHeap+all+a.forRecords(), machine/machineShare)
	most := max(memoryGoal, fast, all/100*(100+goalShare))
	if cgroup > 0 {
		most = min(most, cgroup-cgroup/cgroupSpare)
	}
	return int64(most)
}

// cgroupMemory returns how many bytes of memory the process may have by its control group,
// 0 if there is no bound.
func cgroupMemory() uint64 {
	most, err := memlimit.FromCgroup()
	if err != nil || most > math.MaxInt64 { // no bound is an error, or more than there can be
		return 0
	}
	return most
}
