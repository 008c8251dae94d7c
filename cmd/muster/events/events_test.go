package events

import (
	"testing"
	"time"
)

// TestFollowStartsNow has --follow ask for no past events, unless --since names a time.
func TestFollowStartsNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		filter
		want time.Time
	}{
		{filter{follow: true}, time.Time{}},
		{filter{follow: true, since: "2d"}, now.Add(-48 * time.Hour)},
		{filter{}, now.Add(-time.Hour)},
		{filter{since: "2026-02-01T00:00:00Z"}, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if q, err := tt.query(now); err != nil || !q.Since.Equal(tt.want) || q.Once == tt.follow {
			t.Errorf("%+v: %+v, %v; want events since %v", tt.filter, q, err, tt.want)
		}
	}
}
