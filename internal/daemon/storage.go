package daemon

import (
	"fmt"
	"time"

	"muster/internal/disk"
)

// At 3 KiB a record, 512 MiB are 170,000 renewals.
const maxLowWater = 512 << 20

func lowWater(configured disk.Size, s disk.Space) int64 {
	if configured > 0 {
		return int64(configured)
	}
	return min(maxLowWater, s.Total/20)
}

// enough compares with a mark that is a quarter higher while the alarm is set (low), so that the alarm does not flap.
func enough(free, mark int64, low bool) bool {
	if low {
		mark += mark / 4
	}
	return free >= mark
}

func checkStorage(dir string, s disk.Space, configured disk.Size, low bool) error {
	mark := lowWater(configured, s)
	if !enough(s.Free, mark, low) {
		return fmt.Errorf("%s has %s free, below the mark of %s (store.low_water): no new nodes until %s are free",
			dir, disk.Size(s.Free), disk.Size(mark), disk.Size(mark+mark/4))
	}
	return nil
}

// A disk of 1 GB/s fills 512 MiB in half a second at worst; enrollment takes minutes.
const storageInterval = 2 * time.Second
