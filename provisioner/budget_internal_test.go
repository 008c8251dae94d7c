package provisioner

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestABudgetIsOfItsSource spends one source's budget and gets it back with
// time, and by refunds.
func TestABudgetIsOfItsSource(t *testing.T) {
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
	if n := spend("192.0.2.1"); n != 200 {
		t.Errorf("%d checks at once, want 200", n)
	}
	if n := spend("192.0.2.1:4711"); n != 0 {
		t.Errorf("%d more from another port", n)
	}
	if n := spend("192.0.2.2"); n != 200 {
		t.Errorf("%d checks from another address, want 200", n)
	}
	now = now.Add(100 * time.Millisecond)
	if n := spend("192.0.2.1"); n != 5 {
		t.Errorf("%d checks after a tenth of a second, want 5", n)
	}
	for range 7 {
		b.Refund("192.0.2.1")
	}
	if n := spend("192.0.2.1"); n != 7 {
		t.Errorf("%d checks after 7 that were right, want 7", n)
	}
	now = now.Add(-365 * 24 * time.Hour) // a clock that goes back neither gives nor takes
	if n := spend("192.0.2.1"); n != 0 {
		t.Errorf("%d checks after the clock went back", n)
	}
	now = now.Add(time.Hour)
	for range 300 {
		b.Refund("192.0.2.1") // more than was taken
	}
	if n := spend("192.0.2.1"); n != 200 {
		t.Errorf("%d checks after an hour, want 200", n)
	}
}

// TestSources counts addresses that one machine may have together.
func TestSources(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		a, b string
		same bool
	}{
		"an address and its port":               {"192.0.2.1", "192.0.2.1:4222", true},
		"neighbors":                             {"192.0.2.1", "192.0.2.2", false},
		"an IPv4 address in IPv6":               {"192.0.2.1", "::ffff:192.0.2.1", true},
		"one /64":                               {"2001:db8::1", "[2001:db8::ffff:2]:99", true},
		"two /64":                               {"2001:db8::1", "2001:db8:0:1::1", false},
		"a zone":                                {"fe80::1%eth0", "fe80::2%eth1", true},
		"no address":                            {"", "pipe", true},
		"no address, and the unspecified one":   {"", "0.0.0.0", false},
		"no address, and the unspecified of v6": {"", "::", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if same := sourceKey(tt.a) == sourceKey(tt.b); same != tt.same {
				t.Errorf("%q and %q are one source: %v, want %v", tt.a, tt.b, same, tt.same)
			}
		})
	}
}

// TestManySources attacks from 300,000 addresses. All of them together get no
// more than their common budget, the table stays small, and nobody's debt is
// forgotten to make room for another.
func TestManySources(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := NewBudget(50, func() time.Time { return now })
	for b.Charge("192.0.2.1") { // a debtor from the beginning
	}
	checks, largest := 0, 0
	for i := range 300_000 {
		if b.Charge(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)) {
			checks++
		}
		largest = max(largest, len(b.checks.used))
		if i%1000 == 0 {
			now = now.Add(time.Millisecond)
			b.Refund("192.0.2.1")
			if !b.Charge("192.0.2.1") {
				continue // everybody's budget is spent
			}
			if b.Charge("192.0.2.1") && i < 15_000 {
				t.Fatalf("the first source is forgiven after %d others", i)
			}
		}
	}
	if most := 4000 + 300 + 10; checks > most || checks < 4000 { // 0.3 s have passed
		t.Errorf("%d checks, want at most %d", checks, most)
	}
	if largest > 10_000 {
		t.Errorf("the table grew to %d sources", largest)
	}
	now = now.Add(time.Minute)
	for i := range 1100 { // one over what is not worth cleaning
		b.Charge(fmt.Sprintf("172.16.%d.%d", i>>8, i&255))
	}
	if n := len(b.checks.used); n > 1200 {
		t.Errorf("%d sources are remembered a minute later", n)
	}
	if !b.Charge("192.0.2.1") {
		t.Error("the first source is held to what it did a minute ago")
	}
}

// TestWhatSucceedsLeavesNothing has honest sources checked by many goroutines.
func TestWhatSucceedsLeavesNothing(t *testing.T) {
	t.Parallel()
	b := NewBudget(1, time.Now)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 10_000 {
				if source := fmt.Sprintf("192.0.2.%d", i); b.Charge(source) {
					b.Refund(source)
				} else {
					t.Errorf("%s is refused", source)
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(b.checks.used); n != 0 {
		t.Errorf("%d sources are in the table", n)
	}
}

// TestReportsAreBounded makes more attempts than are worth a line each.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := NewBudget(0, func() time.Time { return now })
	said, left := int64(0), int64(0)
	for range 500 * 60 { // a minute at 500 a second
		now = now.Add(2 * time.Millisecond)
		if !b.Charge("192.0.2.1") {
			t.Fatal("a check is refused, and there is no bound")
		}
		if n, ok := b.Report("192.0.2.1"); ok {
			said, left = said+1, left+n
		}
	}
	if said < 600 || said > 701 {
		t.Errorf("%d reports in a minute, want 600 and the first 100", said)
	}
	now = now.Add(time.Second)
	n, ok := b.Report("192.0.2.2")
	if said, left = said+1, left+n; !ok || said+left != 500*60+1 {
		t.Errorf("%d reports that speak of %d more, want %d in all", said, left, 500*60+1)
	}
	var none *Budget
	if _, ok := none.Report("x"); !ok || !none.Charge("x") {
		t.Error("no budget bounds something")
	}
	none.Refund("x")
}
