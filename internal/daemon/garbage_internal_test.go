package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestRoomUntilTheFirstCollection(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct {
		what string
		alive
		machine uint64
		room    uint64 // that the process gets
	}{
		{"nothing alive", alive{}, 16 * gib, startRoom},
		{"a small fleet", alive{heap: 65 * mib, pointers: 15 * mib, stacks: 5 * mib}, 16 * gib, startRoom},
		{"more", alive{heap: 100 * mib, pointers: 25 * mib, stacks: 5 * mib}, 16 * gib, 100 * mib},
		{"much that the broker has just written", alive{heap: 600 * mib, pointers: 40 * mib, stacks: 10 * mib}, 16 * gib, heapRoom},
		{"10,000 connections", alive{heap: 360 * mib, pointers: 230 * mib, stacks: 136 * mib}, 16 * gib, heapRoom},
		{"a million records", alive{heap: 280 * mib, pointers: 146 * mib, stacks: 7 * mib}, 16 * gib, 400 * mib},
		{"a million records before they are listed", alive{heap: 165 * mib, pointers: 75 * mib, stacks: 5 * mib}, 16 * gib, fewRecordsRoom / 2},
		{"a hundred thousand records", alive{heap: 80 * mib, pointers: 48 * mib, stacks: 5 * mib}, 16 * gib, heapRoom},
		{"the machine does not say", alive{}, 0, startRoom},
	} {
		got := room(&pacer{machine: test.machine}, test.alive)
		if got > test.room || got < test.room*98/100 {
			t.Errorf("%s: room for %d MiB, want %d", test.what, got/mib, test.room/mib)
		}
	}
}

// room is what a busy process may allocate by the pace that it sets now.
func room(p *pacer, a alive) uint64 { return uint64(p.pace(a, false)) * max(a.heap, 4<<20) / 100 }

func TestHeapGrowsWithEachCollectionOfABusyTime(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	few := alive{heap: 45 * mib, pointers: 20 * mib, stacks: 5 * mib}
	many := alive{heap: 280 * mib, pointers: 146 * mib, stacks: 7 * mib}
	unlisted := alive{heap: 165 * mib, pointers: 75 * mib, stacks: 5 * mib}
	for _, test := range []struct {
		what    string
		alive   alive
		machine uint64
		most    uint64 // heap and stacks at last
	}{
		{"a small fleet", few, 16 * gib, busyHeap},
		{"a small fleet on a tiny machine", few, 1 * gib, 256 * mib},
		{"a million records", many, 16 * gib, (287 + 800) * mib},
		{"a million records before they are listed", unlisted, 16 * gib, 170*mib + fewRecordsRoom},
	} {
		p := &pacer{machine: test.machine}
		begun := room(p, test.alive)
		before, step := begun, test.alive.pointers/growthShare
		for range 100 {
			now := room(p, test.alive)
			if now < before || now > before+step+10*mib { // GOGC is in whole percent
				t.Fatalf("%s: room for %d MiB after %d", test.what, now/mib, before/mib)
			}
			before = now
		}
		if got := before + test.alive.heap + test.alive.stacks; got > test.most || got < test.most*98/100 {
			t.Errorf("%s: grown to %d MiB, want %d", test.what, got/mib, test.most/mib)
		}
		p.pace(test.alive, true)
		if got := room(p, test.alive); got != begun {
			t.Errorf("%s: room for %d MiB after a rest, %d at first", test.what, got/mib, begun/mib)
		}
	}
}

func TestPaceAtRest(t *testing.T) {
	t.Parallel()
	for all, want := range map[uint64]int{0: 600, 24 << 20: 100, 240 << 20: 10, 1 << 40: 1} {
		if got := (&pacer{machine: 16 << 30}).pace(alive{heap: all / 2, stacks: all / 2}, true); got != want {
			t.Errorf("with %d MiB alive: GOGC %d, want %d", all>>20, got, want)
		}
	}
}

// TestRestIsNoticed has collections come at times that a test chooses.
func TestRestIsNoticed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &pacer{now: func() time.Time { return now }}
	step := func(after time.Duration, wantResting bool) {
		t.Helper()
		now = now.Add(after)
		if got := p.noted(); got != wantResting {
			t.Errorf("a collection %v after the last: resting is %v", after, got)
		}
		if p.due() {
			t.Error("another collection is due right after one")
		}
	}
	step(0, false)
	step(time.Second, false)
	if now = now.Add(2 * restAfter); !p.due() {
		t.Error("busy, then nothing: no collection is due")
	}
	step(0, true)
	step(0, true)
	step(0, true)
	step(0, false) // a storm that begins right after those three is no rest
	if now = now.Add(2 * restAfter); !p.due() {
		t.Error("busy, then nothing: no collection is due")
	}
	step(0, true)
	step(0, true)
	step(0, true)
	if now = now.Add(time.Hour); p.due() {
		t.Error("at rest: a collection is due")
	}
	step(0, true)
	step(time.Second, false)
	// A collection that came by itself, late, has given nothing back.
	step(2*restAfter, true)
	if now = now.Add(2 * restAfter); !p.due() {
		t.Error("at rest by itself: what is free is not given back")
	}
	step(0, true)
	if now = now.Add(2 * restAfter); p.due() {
		t.Error("what is free is given back twice")
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	connections := alive{heap: 300 * mib, pointers: 220 * mib, stacks: 130 * mib}
	more := alive{heap: 600 * mib, pointers: 500 * mib, stacks: 300 * mib}
	records := alive{heap: 280 * mib, pointers: 146 * mib, stacks: 7 * mib}
	for _, test := range []struct {
		what    string
		alive   alive
		machine uint64
		cgroup  uint64
		want    int64
	}{
		{"nothing alive", alive{}, 16 * gib, 0, memoryGoal},
		{"connections only", connections, 16 * gib, 0, memoryGoal},
		{"more connections than the goal has room for", more, 16 * gib, 0, 1170 * mib},
		{"a million records", records, 16 * gib, 0, (70 + 287 + 800) * mib},
		{"a million records on a small machine", records, 3 * gib, 0, 768 * mib},
		{"a million records on a tiny machine", records, 1 * gib, 0, memoryGoal},
		{"the machine does not say", records, 0, 0, memoryGoal},
		{"in a small container", connections, 400 * mib, 400 * mib, 360 * mib},
		{"in a container with room", connections, 2 * gib, 2 * gib, memoryGoal},
	} {
		if got := limit(test.alive, test.machine, test.cgroup); got < test.want-100 || got > test.want+100 {
			t.Errorf("%s: limit %d MiB, want %d", test.what, got>>20, test.want>>20)
		}
	}
}

// TestPaceFollowsWhatIsAlive keeps a lot alive, and lets it go.
func TestPaceFollowsWhatIsAlive(t *testing.T) { //nolint:paralleltest // there is one collector
	before, limited := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(before); debug.SetMemoryLimit(limited) }()
	gogc := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !condition(); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatalf("GOGC is %d: never %s", gogc(), what)
			}
			runtime.Gosched()
		}
	}
	(&pacer{now: time.Now, machine: 16 << 30}).collected()
	// Other tests may have left some ten MB, for which there is 64 MB of room.
	const fast, slow = 150, 100
	eventually("fast with little alive", func() bool { return gogc() > fast })
	much := make([]byte, busyHeap)
	eventually("slower with much alive", func() bool { return gogc() < slow })
	runtime.KeepAlive(much)
	eventually("fast again", func() bool { return gogc() > fast })
}
