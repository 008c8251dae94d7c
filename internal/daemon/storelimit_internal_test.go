package daemon

import (
	"testing"

	"muster/internal/disk"
	"muster/provisioner/broker"
)

func TestTheLimitHasTwoMarksAndAReserve(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	mark := limitMark(0, limit)
	tight := false
	for _, tt := range []struct {
		left int64
		low  bool
	}{{mark, false}, {mark - 1, true}, {mark + mark/4 - 1, true}, {mark + mark/4, false}, {0, true}} {
		// Promised space counts like space in use.
		err := checkLimit(broker.Usage{Stored: limit / 2, Promised: limit/2 - tt.left, Limit: limit}, 0, tight)
		if tight = err != nil; tight != tt.low {
			t.Errorf("%d left: %v, want low %v", tt.left, err, tt.low)
		}
	}
	for _, configured := range []disk.Size{0, 1, 1 << 50} {
		for _, limit := range []int64{12 << 20, 1 << 30, 4 << 40} {
			if mark := limitMark(configured, limit); mark < 2*reserve(limit) || mark > limit/4 {
				t.Errorf("mark %d configured, limit %d: %d, reserve %d", configured, limit, mark, reserve(limit))
			}
		}
	}
}
