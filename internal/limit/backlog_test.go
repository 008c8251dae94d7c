package limit_test

import (
	"container/heap"
	"testing"
	"time"

	"muster/internal/limit"
)

// load serves at rate a second for some time, while further callers find no room.
func load(c *clock, b *limit.Backlog, rate int, long time.Duration) {
	const tick = 10 * time.Millisecond
	for passed := time.Duration(0); passed < long; passed += tick {
		c.pass(tick)
		if passed%(100*time.Millisecond) == 0 {
			b.Next()
		}
		for range rate / 100 {
			b.Done()
		}
	}
}

// TestCallersComeBackAtTheMeasuredRate refuses 1,000 callers at 100 a second, and expects them back over about ten
// seconds.
func TestCallersComeBackAtTheMeasuredRate(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := limit.NewBacklog(c.Now)
	load(c, b, 100, time.Minute)
	spread := func(what string) {
		t.Helper()
		c.pass(time.Minute) // the callers of the minute before are back
		var last time.Duration
		for i := range 1000 {
			wait := b.Next()
			if wait < 500*time.Millisecond || wait < last {
				t.Fatalf("%s: number %d is told %v, the one before %v", what, i, wait, last)
			}
			last = wait
		}
		if want := 10 * time.Second; last < want*6/10 || last > want*11/10 {
			t.Errorf("%s: the last of 1,000 is told %v, want little below %v", what, last, want)
		}
	}
	spread("after a minute")
	c.pass(time.Minute)
	for range 100 { // a time with little work is ignored
		c.pass(250 * time.Millisecond)
		b.Done()
	}
	spread("after idle time")
	c.pass(time.Minute)
	for range 1000 { // and so is a stalled store
		c.pass(10 * time.Millisecond)
		b.Next()
		b.Stalled()
	}
	spread("after the store was away")
}

// TestFirstWaitsAreShort refuses 20,000 callers right after a start: none waits longer than was measured.
func TestFirstWaitsAreShort(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := limit.NewBacklog(c.Now)
	for range 20_000 {
		if wait := b.Next(); wait < 500*time.Millisecond || wait > 5*time.Second {
			t.Fatalf("told %v, want 0.5 to 5 s", wait)
		}
	}
	load(c, b, 100, 10*time.Minute)
	for range 100_000 {
		if wait := b.Next(); wait > 5*time.Minute {
			t.Fatalf("told %v, want 5 minutes at most", wait)
		}
	}
}

// returns are the times at which nodes come, the earliest first.
type returns []time.Time

func (r returns) Len() int           { return len(r) }
func (r returns) Less(i, j int) bool { return r[i].Before(r[j]) }
func (r returns) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }

//nolint:forcetypeassert // only times are pushed
func (r *returns) Push(x any) { *r = append(*r, x.(time.Time)) }
func (r *returns) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// TestStormIsServedAtTheFullRate simulates 20,000 nodes that all ask right after a start.
func TestStormIsServedAtTheFullRate(t *testing.T) {
	t.Parallel()
	for name, storm := range map[string]storm{
		"as measured":            {full: 2400},
		"a slow disk":            {full: 800},
		"a faster machine":       {full: 10_000},
		"a store without leader": {full: 2400, stalls: 4 * time.Second, until: 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storm.run(t)
		})
	}
}

// A storm is a process that could serve full nodes a second if it did nothing else. A connection with a refusal costs
// 0.3 of serving a node. While both wait, connections and requests get half of the time each.
type storm struct {
	full          float64
	stalls, until time.Duration // when nothing is served, after the start
}

// run expects the full rate from the tenth second on, or ten seconds after the stall, until nearly all are served.
func (storm storm) run(t *testing.T) {
	const (
		nodes, room = 20_000, 2304
		connection  = 0.3 // of what serving a node takes
		tick        = 10 * time.Millisecond
	)
	c := newClock()
	start := c.now
	b := limit.NewBacklog(c.Now)
	due := make(returns, nodes)
	for i := range due {
		due[i] = start
	}
	var arrived, queue, served, servedBefore, vain int
	var accepting, serving float64 // work that may be done now
	for elapsed := tick; served < nodes; elapsed += tick {
		if elapsed > 2*time.Minute {
			t.Fatalf("%d of %d served after %v", served, nodes, elapsed)
		}
		c.now = start.Add(elapsed)
		for len(due) > 0 && !due[0].After(c.now) {
			heap.Pop(&due)
			arrived++
		}
		work := storm.full * tick.Seconds()
		switch {
		case elapsed > storm.stalls && elapsed <= storm.until:
			accepting = work
		case arrived > 0 && queue > 0:
			accepting, serving = accepting+work/2, serving+work/2
		case arrived > 0:
			accepting += work
		default:
			serving = min(serving+work, float64(queue))
		}
		for ; arrived > 0 && accepting >= connection; accepting -= connection {
			arrived--
			if queue < room {
				queue++
				continue
			}
			vain++
			heap.Push(&due, c.now.Add(b.Next()))
		}
		for ; queue > 0 && serving >= 1-connection; serving -= 1 - connection {
			queue--
			served++
			b.Done()
		}
		if elapsed%time.Second > 0 {
			continue
		}
		if elapsed > storm.until+10*time.Second && nodes-served > room &&
			float64(served-servedBefore) < 0.7*storm.full {
			t.Errorf("%v after the start: %d served in a second, want %v", elapsed, served-servedBefore, storm.full)
		}
		servedBefore = served
	}
	took := c.now.Sub(start)
	t.Logf("served after %v, %.2f times in vain each", took, float64(vain)/nodes)
	work := time.Duration(nodes/storm.full*float64(time.Second)) + storm.until - storm.stalls
	if took > work*3/2+time.Second {
		t.Errorf("took %v, want at most half more than the work alone, %v", took, work)
	}
}
