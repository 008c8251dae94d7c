package provisioner

import (
	"fmt"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

func TestRecentOffers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	record := func(name string) *Record { return &Record{Identity: wire.Identity(name), Next: &Issued{}} }
	var m recentOffers
	if r, _ := m.take("a", now); r != nil {
		t.Fatalf("%+v of nothing", r)
	}
	for name, tt := range map[string]struct {
		age  time.Duration
		want trust.Revision
	}{"at once": {0, 2}, "at the limit": {recentFor, 2}, "too old": {recentFor + 1, 0},
		"clock gone back": {-recentFor - 1, 0}} {
		m.put(record("a"), 1, now)
		m.put(record("a"), 2, now)
		if r, revision := m.take("a", now.Add(tt.age)); revision != tt.want || (r != nil) != (tt.want != 0) {
			t.Errorf("%s: %+v, %d, want revision %d", name, r, revision, tt.want)
		}
		if r, _ := m.take("a", now); r != nil {
			t.Errorf("%s: taken twice", name)
		}
	}
	m.put(record("a"), 1, now)
	m.put(&Record{Identity: "a"}, 2, now)
	if r, _ := m.take("a", now); r != nil {
		t.Errorf("%+v, after a record without an offer", r)
	}
	const n = 5*maxRecent + maxRecent/2
	for i := range n {
		m.put(record(fmt.Sprint(i)), trust.Revision(i), now)
		if got := len(m.records); got > maxRecent {
			t.Fatalf("%d records remembered, limit %d", got, maxRecent)
		}
	}
	for i := n - maxRecent/2; i < n; i++ {
		if r, revision := m.take(wire.Identity(fmt.Sprint(i)), now); r == nil || revision != trust.Revision(i) {
			t.Fatalf("record %d of %d is forgotten", i, n)
		}
	}
}
