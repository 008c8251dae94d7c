package limit_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"muster/internal/limit"
)

// clock is a settable clock.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// TestEachKeyHasItsOwnBucket spends one key's bucket, which refills with time and by refunds.
func TestEachKeyHasItsOwnBucket(t *testing.T) {
	t.Parallel()
	c := newClock()
	k := limit.NewKeyed[string](limit.Rate{PerSecond: 50, Burst: 200, Now: c.Now})
	spend := func(what, key string, want int) {
		t.Helper()
		n := 0
		for k.Allow(key) {
			if n++; n > 10_000 {
				t.Fatalf("the bucket of %s does not end", key)
			}
		}
		if n != want {
			t.Errorf("%s: %d allowed, want %d", what, n, want)
		}
	}
	spend("at once", "a", 200)
	spend("another key", "b", 200)
	c.pass(100 * time.Millisecond)
	spend("a tenth of a second later", "a", 5)
	for range 7 {
		k.Refund("a")
	}
	spend("after 7 refunds", "a", 7)
	c.pass(-365 * 24 * time.Hour)
	spend("after the clock went back", "a", 0)
	c.pass(time.Hour)
	for range 300 {
		k.Refund("a") // more than was taken
	}
	spend("an hour later", "a", 200)
}

// TestManyKeysShareALimitAndAreForgotten asks with 300,000 keys.
func TestManyKeysShareALimitAndAreForgotten(t *testing.T) {
	t.Parallel()
	c := newClock()
	k := limit.NewKeyed[string](limit.Rate{PerSecond: 50, Burst: 200, All: 20, Now: c.Now})
	for k.Allow("first") {
	}
	allowed := 0
	for i := range 300_000 {
		if k.Allow(fmt.Sprint(i)) {
			allowed++
		}
		if i%1000 == 0 {
			c.pass(time.Millisecond)
		}
	}
	if allowed < 3800 || allowed > 4000-200+300+10 { // 0.3 s have passed
		t.Errorf("%d allowed, want some 4,000 of all keys together", allowed)
	}
	if n := k.Len(); n > 10_000 {
		t.Errorf("%d keys are remembered", n)
	}
	c.pass(time.Minute)
	if n := k.Len(); n != 0 || !k.Allow("first") {
		t.Errorf("%d keys are remembered a minute later", n)
	}
}

// TestKeysBeyondTheLimitShareABucket has more keys than are remembered.
func TestKeysBeyondTheLimitShareABucket(t *testing.T) {
	t.Parallel()
	c := newClock()
	k := limit.NewKeyed[int](limit.Rate{PerSecond: 1, Burst: 2, Keys: 100, Now: c.Now})
	allowed := 0
	for i := range 1000 {
		if k.Allow(i) {
			allowed++
		}
	}
	if n := k.Len(); allowed != 102 || n != 100 {
		t.Errorf("%d of 1,000 keys were allowed, %d are remembered; want 102 and 100", allowed, n)
	}
	if !k.Allow(0) || k.Allow(0) {
		t.Error("a key that is remembered has not what is left of its own bucket")
	}
}

// TestRefundLeavesNothing has many goroutines take and give back.
func TestRefundLeavesNothing(t *testing.T) {
	t.Parallel()
	k := limit.NewKeyed[int](limit.Rate{PerSecond: 1, Burst: 4, All: 20})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 10_000 {
				if !k.Allow(i) {
					t.Errorf("key %d is refused", i)
					return
				}
				k.Refund(i)
			}
		})
	}
	all.Wait()
	if n := k.Len(); n != 0 {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestRefusalsAreCounted returns earlier refusals with the next permission.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	c := newClock()
	k := limit.NewKeyed[string](limit.Rate{PerSecond: 10, Burst: 100, Now: c.Now})
	var allowed, leftOut int64
	for range 500 * 60 { // a minute at 500 a second
		c.pass(2 * time.Millisecond)
		if n, ok := k.Take("a"); ok {
			allowed, leftOut = allowed+1, leftOut+n
		}
	}
	if allowed < 600 || allowed > 701 {
		t.Errorf("%d allowed in a minute, want 600 and the first 100", allowed)
	}
	c.pass(time.Second)
	if n, ok := k.Take("a"); !ok || allowed+1+leftOut+n != 500*60+1 {
		t.Errorf("%d allowed and %d left out, want %d together", allowed+1, leftOut+n, 500*60+1)
	}
	var none *limit.Keyed[string]
	if _, ok := none.Take("a"); !ok {
		t.Error("no limit bounds something")
	}
	none.Refund("a")
}

// TestSource maps addresses of one site to one key.
func TestSource(t *testing.T) {
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
		if same := limit.Source(tt.a) == limit.Source(tt.b); same != tt.same {
			t.Errorf("%s: %q and %q are one source: %v, want %v", name, tt.a, tt.b, same, tt.same)
		}
	}
}

// TestSharesLeaveRoomForOtherKeys has one key take all it gets, and then another key.
func TestSharesLeaveRoomForOtherKeys(t *testing.T) {
	t.Parallel()
	s := limit.NewShares[string](100)
	take := func(key string) (n int) {
		for s.Acquire(key, 1) {
			n++
		}
		return n
	}
	if n := take("a"); n != 50 {
		t.Errorf("the first has %d of 100, want half", n)
	}
	if n := take("b"); n != 25 {
		t.Errorf("the second has %d, want half of what is left", n)
	}
	if s.Acquire("c", 26) || !s.Acquire("c", 10) {
		t.Error("the third has more than is left, or nothing")
	}
	s.Release("a", 50)
	if n := take("b"); n != 20 { // 45 of the 90 that are not c's
		t.Errorf("the second has %d more, want 20", n)
	}
}
