package daemon

import (
	"fmt"
	"testing"
	"testing/synctest"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// limited gives k a JetStream of so many bytes that has a hundredth left, and
// whose limit is another after a restart.
func limited(k *kept, after int64) {
	const limit = 1 << 30
	u := broker.Usage{Stored: limit / 100 * 99, Limit: limit}
	k.usage = func() (broker.Usage, error) {
		if k.restarts > 0 {
			u.Limit = after
		}
		return u, nil
	}
	k.limit = func() (int64, error) { return after, nil }
	k.setRoom = func(bytes int64) { k.room = bytes }
}

// TestAFullStoreIsRestartedForMoreRoomOnly and at most once.
func TestAFullStoreIsRestartedForMoreRoomOnly(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after    int64
		restarts int
	}{
		"no more": {1 << 30, 0}, "less": {1 << 29, 0}, "little more": {1<<30 + 64<<20, 0}, "twice as much": {2 << 30, 1},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " refused ", refused), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					k := newKept(t)
					k.mends = true
					limited(k, tt.after)
					if refused {
						k.probeErr = fmt.Errorf("probe: %w", provisioner.ErrStoreFull)
					}
					k.pass(t, 120, refused)
					low := k.alarms.Stands(wire.CodeStorageLow)
					if k.restarts != tt.restarts || (low != nil) != (tt.restarts == 0) || k.stands() != "" {
						t.Errorf("%d restarts, storage_low %v, store_unavailable %q, want %d restarts and an alarm without one", k.restarts, low, k.stands(), tt.restarts)
					}
				})
			})
		}
	}
}

func TestTheLimitHasTwoMarksAndAReserve(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	k := newKept(t)
	k.setRoom = func(bytes int64) { k.room = bytes }
	mark := limitMark(0, limit)
	for _, tt := range []struct {
		left int64
		low  bool
	}{{mark, false}, {mark - 1, true}, {mark + mark/4 - 1, true}, {mark + mark/4, false}, {0, true}} {
		// Half of what is taken is only promised: it counts as much.
		k.usage = func() (broker.Usage, error) {
			return broker.Usage{Stored: limit / 2, Promised: limit/2 - tt.left, Limit: limit}, nil
		}
		k.limit = func() (int64, error) { return limit, nil }
		k.lookAtLimit(t.Context())
		if (k.tight != nil) != tt.low || k.room != tt.left-reserve(limit) {
			t.Errorf("%d left: %v, room for %d, want low %v and room for %d", tt.left, k.tight, k.room, tt.low, tt.left-reserve(limit))
		}
	}
	for _, configured := range []size{0, 1, 1 << 50} {
		for _, limit := range []int64{12 << 20, 1 << 30, 4 << 40} {
			if mark := limitMark(configured, limit); mark < 2*reserve(limit) || mark > limit/4 {
				t.Errorf("mark %d configured, limit %d: %d, reserve %d", configured, limit, mark, reserve(limit))
			}
		}
	}
}
