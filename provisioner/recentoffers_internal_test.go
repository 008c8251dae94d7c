package provisioner

import (
	"testing"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/provisioner/trust"
)

func TestRecentOffers(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		age  time.Duration
		want trust.Revision
	}{
		"at once":         {0, 2},
		"at the limit":    {recentFor, 2},
		"too old":         {recentFor + time.Second, 0},
		"clock gone back": {-recentFor - time.Second, 0},
	} {
		w := records{&Provisioner{
			cfg:    Config{Now: func() time.Time { return begun.Add(tt.age) }},
			recent: limit.NewCache[wire.Identity, remembered](maxRecent),
		}}
		if r, _ := w.recall("a"); r != nil {
			t.Errorf("%s: %+v of nothing", name, r)
		}
		for revision := range trust.Revision(3) {
			w.recent.Put("a", remembered{&Record{Identity: "a"}, revision, begun})
		}
		if r, revision := w.recall("a"); revision != tt.want || (r != nil) != (tt.want != 0) {
			t.Errorf("%s: %+v, %d, want revision %d", name, r, revision, tt.want)
		}
		if r, _ := w.recall("b"); r != nil {
			t.Errorf("%s: %+v of another node", name, r)
		}
	}
}
