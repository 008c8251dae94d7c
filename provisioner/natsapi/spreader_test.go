package natsapi

import (
	"testing"
	"time"
)

// TestSlotsFollowTheMeasuredRate sends 1,000 away at 100 a second and expects
// them back over about ten seconds, none sooner than half a second.
func TestSlotsFollowTheMeasuredRate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := newSpreader(func() time.Time { return now })
	s.next() // somebody was sent away, so the measurements count
	for range 60 {
		s.slot = now.Add(time.Second)
		s.measured(100)
	}
	s.slot = now
	var last time.Duration
	for i := range 1000 {
		wait := s.next()
		if wait < minRetryAfter || wait < last {
			t.Fatalf("slot %d is in %v, the one before in %v", i, wait, last)
		}
		last = wait
	}
	if last < 9*time.Second || last > 11*time.Second {
		t.Errorf("the last of 1,000 is told %v, want about 10s", last)
	}
	for range 100_000 {
		if wait := s.next(); wait > maxRetryAfter {
			t.Fatalf("told %v, limit %v", wait, maxRetryAfter)
		}
	}
}

// TestAnIdleSecondIsNoMeasurement keeps the rate when nobody asked.
func TestAnIdleSecondIsNoMeasurement(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := newSpreader(func() time.Time { return now })
	for range 100 {
		s.measured(0)
	}
	if s.rate != startRate {
		t.Errorf("rate = %v, want %v", s.rate, startRate)
	}
}
