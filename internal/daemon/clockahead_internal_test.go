package daemon

import (
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/metrics"
)

func TestActivityOfAClockThatWasAheadIsNotRecent(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(24 * time.Hour)
	a := newActivity(metrics.New("test", nil))
	a.now = func() time.Time { return now }
	a.Done(provisioner.RequestEnroll, time.Millisecond, "")
	now = now.Add(-23 * time.Hour)
	if got := a.recent(); got.Enrolled != 0 {
		t.Errorf("recent = %+v", got)
	}
}
