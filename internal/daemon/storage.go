package daemon

import (
	"fmt"
	"time"

	"muster/internal/disk"
)

// maxLowWater bounds the default low-water mark: on a large disk a
// twentieth would be more than anybody needs to clean up in peace. Chosen: at
// 3 KiB a record, 512 MiB are 170,000 renewals.
const maxLowWater = 512 << 20

// lowWater returns the mark for a file system of this size.
func lowWater(configured disk.Size, s disk.Space) int64 {
	if configured > 0 {
		return int64(configured)
	}
	return min(maxLowWater, s.Total/20)
}

// checkStorage returns why the file system of dir, which has s, has too little left,
// or nil. low says that it was so before: then it takes a quarter more than the mark
// to be enough, or one file would turn the alarm on and off.
func checkStorage(dir string, s disk.Space, configured disk.Size, low bool) error {
	mark := lowWater(configured, s)
	want := mark
	if low {
		want += mark / 4
	}
	if s.Free < want {
		return fmt.Errorf("%s has %s free, below the mark of %s (store.low_water): no new identities until %s are free",
			dir, disk.Size(s.Free), disk.Size(mark), disk.Size(mark+mark/4))
	}
	return nil
}

// startRoom is what must be free on the store's disk at a start: its streams are made or looked through, and the
// first writes would fail without. It is a few times what they take.
const startRoom = 16 << 20

// storageEvery is how often the free space is looked at: a disk of 1 GB/s
// fills a low-water mark of 512 MiB in half a second at worst, and at the pace
// of enrollment in minutes.
const storageEvery = 2 * time.Second
