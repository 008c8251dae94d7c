package store

import (
	"testing"
	"time"
)

// TestALongListWaitsForCalm: nodes that wait when a provisioner starts go before the
// list of nodes, but not for ever, and not before a list that is read in no time.
func TestALongListWaitsForCalm(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	busyUntil := func(end time.Duration) *recordFollower {
		f := &recordFollower{}
		for at := time.Duration(0); at <= end; at += followEvery {
			f.note(busyWrites, start.Add(at))
		}
		return f
	}
	quiet := &recordFollower{}
	quiet.note(busyWrites-1, start)
	begun := busyUntil(0)
	begun.through = 1
	for _, c := range []struct {
		name     string
		f        *recordFollower
		messages uint64
		after    time.Duration
		waits    bool
	}{
		{"few records", busyUntil(0), manyMessages - 1, 0, false},
		{"just started", quiet, manyMessages, 0, true},
		{"still calm", quiet, manyMessages, calmAfter - 1, true},
		{"long calm", quiet, manyMessages, calmAfter, false},
		{"busy", busyUntil(10 * time.Second), manyMessages, 14 * time.Second, true},
		{"calm after a storm", busyUntil(10 * time.Second), manyMessages, 15 * time.Second, false},
		{"busy for long", busyUntil(listsAfter), manyMessages, listsAfter, false},
		{"begun before", begun, manyMessages, 0, false},
	} {
		if got := c.f.waits(c.messages, start.Add(c.after)); got != c.waits {
			t.Errorf("%s: waits %v", c.name, got)
		}
	}
}
