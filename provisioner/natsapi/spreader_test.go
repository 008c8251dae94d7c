package natsapi

import (
	"container/heap"
	"testing"
	"time"
)

// clock is a clock to move.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time { return c.now }

// load has a spreader measure for some time in which all who can be served are,
// at rate a second, and others find no room.
func load(c *clock, s *spreader, rate float64, long time.Duration) {
	for range long / measureEvery {
		s.next()
		c.now = c.now.Add(measureEvery)
		s.measure(int64(rate*measureEvery.Seconds()), 0, measureEvery)
	}
}

// TestTheyComeBackAtTheMeasuredRate sends 1,000 away at 100 a second and expects
// them back over about ten seconds, none sooner than half a second.
func TestTheyComeBackAtTheMeasuredRate(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := newSpreader(c.Now)
	load(c, s, 100, time.Minute)
	c.now = c.now.Add(time.Minute) // those of the minute before are back
	var last time.Duration
	for i := range 1000 {
		wait := s.next()
		if wait < minRetryAfter || wait < last {
			t.Fatalf("number %d is told %v, the one before %v", i, wait, last)
		}
		last = wait
	}
	if want := 10 * time.Second; last < want*7/10 || last > want {
		t.Errorf("the last of 1,000 is told %v, want little below %v", last, want)
	}
	for range 100_000 {
		if wait := s.next(); wait > time.Minute {
			t.Fatalf("told %v after a minute of measuring", wait)
		}
	}
}

// TestNobodyWaitsLongForAnEstimate sends 20,000 away right after a start, and
// expects none to be told a time that nothing is known about.
func TestNobodyWaitsLongForAnEstimate(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := newSpreader(c.Now)
	for range 20_000 {
		if wait := s.next(); wait < minRetryAfter || wait > firstRetryAfter {
			t.Fatalf("told %v, want %v to %v", wait, minRetryAfter, firstRetryAfter)
		}
	}
	load(c, s, 100, 10*time.Minute)
	for range 100_000 {
		if wait := s.next(); wait > maxRetryAfter {
			t.Fatalf("told %v, limit %v", wait, maxRetryAfter)
		}
	}
}

// TestIdleTimeIsNoMeasurement keeps the rate when nobody had to be sent away,
// and when the store has stalled.
func TestIdleTimeIsNoMeasurement(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := newSpreader(c.Now)
	load(c, s, 400, 10*time.Second)
	rate := s.rate
	for range 100 {
		s.measure(1, 0, measureEvery)
	}
	if s.rate != rate {
		t.Errorf("rate after nobody asked = %v, want %v", s.rate, rate)
	}
	load(c, s, 0, 10*time.Second)
	if s.rate != rate {
		t.Errorf("rate after the store stalled = %v, want %v", s.rate, rate)
	}
	for range 100 {
		s.next()
		s.measure(10, 20, measureEvery) // what it had stalled fails
		s.next()
		s.measure(10, 5000, measureEvery) // and then all that comes, at once
	}
	if s.rate != rate {
		t.Errorf("rate after the store was away = %v, want %v", s.rate, rate)
	}
}

// returns are the times at which nodes come, the earliest first.
type returns []time.Time

func (r returns) Len() int           { return len(r) }
func (r returns) Less(i, j int) bool { return r[i].Before(r[j]) }
func (r returns) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *returns) Push(x any)        { *r = append(*r, x.(time.Time)) } //nolint:forcetypeassert // nobody else pushes
func (r *returns) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// TestAStormIsServedAtTheFullRate simulates 20,000 nodes that all ask right
// after a start.
func TestAStormIsServedAtTheFullRate(t *testing.T) {
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

// A storm is of a process that could serve full nodes a second if it did nothing
// else, where a connection, and telling that there is no room, takes 0.3 of what
// serving a node does, and connections and requests get half of the time each as
// long as both wait.
type storm struct {
	full          float64
	stalls, until time.Duration // when nothing is served, after the start
}

// run expects the full rate from the tenth second on, or ten seconds after the
// stall, until nearly all are served.
func (storm storm) run(t *testing.T) {
	const (
		nodes, room = 20_000, 2304
		connection  = 0.3 // of what serving a node takes
		tick        = 10 * time.Millisecond
	)
	c := newClock()
	start := c.now
	s := newSpreader(c.Now)
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
			heap.Push(&due, c.now.Add(s.next()))
		}
		for ; queue > 0 && serving >= 1-connection; serving -= 1 - connection {
			queue--
			served++
			s.done(false)
		}
		if elapsed%measureEvery == 0 {
			s.measure(s.finished.Swap(0), s.stalled.Swap(0), measureEvery)
		}
		if elapsed%time.Second > 0 {
			continue
		}
		if elapsed > storm.until+10*time.Second && nodes-served > room && float64(served-servedBefore) < 0.7*storm.full {
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
