package server

import (
	"testing"
	"time"
	"unsafe"
)

// setBack returns t as [time.Now] would after the machine's clock was set back: what it has of
// the process's clock is as before.
func setBack(t time.Time, by time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t)) // no other way leads there without setting the clock
	*wall -= uint64(by/time.Second) << 30
	return t
}

// TestTimeGoesOnWhereTheClockIsSetBack has the clock of an agent that runs be set back to
// before its certificate begins: by the process's clock nothing has happened.
func TestTimeGoesOnWhereTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	seen := time.Now()
	now := setBack(seen, year)
	if back := seen.Round(0).Sub(now.Round(0)); back != year || !now.Equal(seen) {
		t.Fatalf("a clock that was set back by a year is %v behind, and equal by the process's: %v", back, now.Equal(seen))
	}
	s := newServer(Config{Now: func() time.Time { return setBack(time.Now(), year) }}, compiledIn{}, places{})
	s.seen, s.proven = seen, seen.Round(0).Add(-time.Hour) // a certificate knows of one clock only
	s.seenAt = seen.Add(time.Millisecond)                  // who looks at two clocks does so one after the other
	if got := s.now(); got.Round(0).Before(seen.Round(0).Add(-time.Second)) {
		t.Errorf("it is %v, and was %v", got, seen)
	}
}
