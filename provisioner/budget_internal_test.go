package provisioner

import (
	"fmt"
	"testing"
	"time"
)

func TestABudgetIsPerSource(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := NewBudget(50, func() time.Time { return now })
	spend := func(source string) (n int) {
		for b.Charge(source) {
			if n++; n > 10_000 {
				t.Fatalf("the budget of %s does not end", source)
			}
		}
		return n
	}
	for source, want := range map[string]int{"192.0.2.1": 200, "2001:db8::1": 200} {
		if n := spend(source); n != want {
			t.Errorf("%d checks of %s at once, want %d", n, source, want)
		}
	}
	if n := spend("192.0.2.1:4711") + spend("2001:db8::2"); n != 0 {
		t.Errorf("%d more from another port, or another address of the same /64", n)
	}
	for range 7 {
		b.Refund("192.0.2.1")
	}
	if n := spend("192.0.2.1"); n != 7 {
		t.Errorf("%d checks after 7 that were right", n)
	}
}

func TestAFewSourcesDoNotTakeAllReports(t *testing.T) {
	t.Parallel()
	b := NewBudget(50, func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	for i := range 10_000 {
		b.Report(fmt.Sprintf("192.0.2.%d", i%20))
	}
	for source, want := range map[string]bool{"192.0.2.1": false, "198.51.100.1": true, "2001:db8::1": true} {
		if _, ok := b.Report(source); ok != want {
			t.Errorf("a refusal from %s is reported: %v, want %v", source, ok, want)
		}
	}
}
