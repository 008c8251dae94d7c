package webhook_test

import (
	"testing"
	"time"

	"muster/provisioner/webhook"
)

// TestWaitsGrow compares the schedule with its documentation.
func TestWaitsGrow(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultSchedule
	want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 320 * time.Second, 10 * time.Minute, 10 * time.Minute}
	spread := map[bool]bool{}
	for i, w := range want {
		for range 100 {
			got := s.Wait(i+1, 0)
			if got < w*3/4 || got > w*5/4 {
				t.Fatalf("wait %d is %v, want %v and a quarter of it more or less", i+1, got, w)
			}
			spread[got > w] = true
		}
	}
	if !spread[true] || !spread[false] {
		t.Error("waits are not spread")
	}
	if got := s.Wait(1, 2*time.Minute); got != 2*time.Minute {
		t.Errorf("an endpoint that wants two minutes gets %v", got)
	}
	if got := s.Wait(1, time.Hour); got != s.Max {
		t.Errorf("an endpoint that wants an hour gets %v, want %v", got, s.Max)
	}
	var all time.Duration
	for n := 1; n < s.Tries(); n++ {
		all += s.Planned(n)
	}
	if all < s.Total || all > s.Total+s.Max {
		t.Errorf("%d tries take %v, want %v", s.Tries(), all, s.Total)
	}
}
