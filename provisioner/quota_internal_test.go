package provisioner

import (
	"fmt"
	"testing"
	"time"
)

func TestQuotasRefillAndDoNotSpill(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q := newQuotas(Quotas{PerToken: 4, PerSource: 2}, func() time.Time { return now })
	step := func(what string, err error, ok bool) {
		t.Helper()
		if ok != (err == nil) {
			t.Fatalf("%s: %v, want let in %v", what, err, ok)
		}
	}
	step("1 from a", q.take("t", "192.0.2.1"), true)
	step("2 from a", q.take("t", "192.0.2.1"), true)
	for i := range 5 {
		step(fmt.Sprintf("%d from a", i+3), q.take("t", "192.0.2.1"), false)
	}
	// The refusal of a does not count against the token.
	step("1 from b", q.take("t", "192.0.2.2"), true)
	step("2 from b", q.take("t", "192.0.2.2"), true)
	step("a fifth by the token", q.take("t", "192.0.2.3"), false)
	// Nor does the token's refusal count against c.
	step("1 from c by another token", q.take("u", "192.0.2.3"), true)
	step("2 from c by another token", q.take("u", "192.0.2.3"), true)
	step("3 from c by another token", q.take("u", "192.0.2.3"), false)
	now = now.Add(15*time.Minute - time.Second) // a quarter of an hour is one of four
	step("too early", q.take("t", "192.0.2.4"), false)
	now = now.Add(2 * time.Second)
	step("after a quarter of an hour", q.take("t", "192.0.2.4"), true)
	step("and one more", q.take("t", "192.0.2.4"), false)
	now = now.Add(24 * time.Hour)
	for i := range 4 { // a day saves no more than an hour's worth
		step(fmt.Sprintf("%d a day later", i+1), q.take("t", fmt.Sprintf("192.0.2.%d", 10+i)), true)
	}
	step("5 a day later", q.take("t", "192.0.2.26"), false)

	none := newQuotas(Quotas{}, time.Now)
	for range 1000 {
		step("without a bound", none.take("t", "192.0.2.1"), true)
	}
}

func TestQuotasCountWholeSites(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q := newQuotas(Quotas{PerToken: 100_000, PerSource: 2}, func() time.Time { return now })
	for i, tt := range []struct {
		source string
		ok     bool
	}{
		{"2001:db8:1:2::1", true}, {"[2001:db8:1:2::2]:4222", true}, {"2001:db8:1:2:ffff::3", false},
		{"2001:db8:1:3::1", true},
		{"192.0.2.1", true}, {"::ffff:192.0.2.1", true}, {"192.0.2.1:1", false}, {"192.0.2.2", true},
	} {
		if err := q.take("t", tt.source); (err == nil) != tt.ok {
			t.Errorf("%d, from %s: %v, want let in %t", i, tt.source, err, tt.ok)
		}
	}
	for i := range 20_010 {
		if err := q.take("t", fmt.Sprintf("10.1.%d.%d", i/256, i%256)); err != nil {
			t.Fatal(err)
		}
	}
	if q.take("t", "2001:db8:1:2::4") == nil || q.take("t", "192.0.2.1") == nil {
		t.Error("many sources, and what was counted is forgiven")
	}
}
