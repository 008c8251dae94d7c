package events

import (
	"testing"
	"time"

	"muster/provisioner/events"
)

// TestFollowStartsNow has --follow ask for no past events, unless --since names a time.
func TestFollowStartsNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := now.Add(-48 * time.Hour)
	for _, tt := range []struct {
		filter
		want time.Time
	}{
		{filter{follow: true}, time.Time{}},
		{filter{follow: true, Query: events.Query{Since: before}}, before},
		{filter{}, now.Add(-time.Hour)},
		{filter{Query: events.Query{Since: before}}, before},
	} {
		if q := tt.query(now); !q.Since.Equal(tt.want) || q.Once == tt.follow {
			t.Errorf("%+v: %+v; want events since %v", tt.filter, q, tt.want)
		}
	}
}
