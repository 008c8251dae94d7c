package provisioner

import (
	"fmt"
	"testing"
	"time"
)

// TestQuotasRefillAndDoNotSpill counts by token and by source.
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
	step("1 from a", q.take("t", "a"), true)
	step("2 from a", q.take("t", "a"), true)
	for i := range 5 {
		step(fmt.Sprintf("%d from a", i+3), q.take("t", "a"), false)
	}
	// What a was refused does not count against the token.
	step("1 from b", q.take("t", "b"), true)
	step("2 from b", q.take("t", "b"), true)
	step("a fifth by the token", q.take("t", "c"), false)
	// Nor does what the token was refused count against c.
	step("1 from c by another token", q.take("u", "c"), true)
	step("2 from c by another token", q.take("u", "c"), true)
	step("3 from c by another token", q.take("u", "c"), false)
	now = now.Add(15*time.Minute - time.Second) // a quarter of an hour is one of four
	step("too early", q.take("t", "d"), false)
	now = now.Add(2 * time.Second)
	step("after a quarter of an hour", q.take("t", "d"), true)
	step("and one more", q.take("t", "d"), false)
	now = now.Add(24 * time.Hour)
	for i := range 4 { // a day saves no more than an hour's worth
		step(fmt.Sprintf("%d a day later", i+1), q.take("t", string(rune('e'+i))), true)
	}
	step("5 a day later", q.take("t", "z"), false)

	none := newQuotas(Quotas{}, time.Now)
	for range 1000 {
		step("without a bound", none.take("t", "a"), true)
	}
}
