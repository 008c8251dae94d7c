package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPaceOfCollections(t *testing.T) {
	t.Parallel()
	for alive, want := range map[uint64]int{
		0: 3200, 1 << 20: 3200, 4 << 20: 3200, 32 << 20: 400, 64 << 20: 200, 128 << 20: 100, 256 << 20: 200, 1 << 40: 299,
	} {
		if got := pace(alive, 0, false); got != want {
			t.Errorf("with %d MiB alive: GOGC %d, want %d", alive>>20, got, want)
		}
	}
}

func TestPaceAtRest(t *testing.T) {
	t.Parallel()
	for alive, want := range map[uint64]int{0: 600, 24 << 20: 100, 240 << 20: 10, 1 << 40: 1} {
		if got := pace(alive/2, alive/2, true); got != want {
			t.Errorf("with %d MiB alive: GOGC %d, want %d", alive>>20, got, want)
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
	for _, test := range []struct {
		what                  string
		heap, stacks, machine uint64
		want                  int64
	}{
		{"nothing alive", 0, 0, 16 * gib, memoryGoal},
		{"connections only", 300 * mib, 130 * mib, 16 * gib, memoryGoal},
		{"more connections than the goal has room for", 600 * mib, 300 * mib, 16 * gib, 1170 * mib},
		{"a million records", 358 * mib, 10 * mib, 16 * gib, memoryGoal + 600*mib},
		{"a million records on a small machine", 358 * mib, 10 * mib, 4 * gib, 1 * gib},
		{"a million records on a tiny machine", 370 * mib, 10 * mib, 1 * gib, memoryGoal},
		{"the machine does not say", 370 * mib, 10 * mib, 0, memoryGoal},
	} {
		if got := limit(test.heap, test.stacks, test.machine); got < test.want-100 || got > test.want+100 {
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
	(&pacer{now: time.Now}).collected()
	eventually("fast with little alive", func() bool { return gogc() > 300 })
	much := make([]byte, 2*heapRoom)
	eventually("slower with much alive", func() bool { return gogc() < 300 })
	runtime.KeepAlive(much)
	eventually("fast again", func() bool { return gogc() > 300 })
}
