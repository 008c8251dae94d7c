package chaos_test

import (
	"os"
	"path/filepath"
	"time"

	"muster/internal/testdisk"
)

// Enough for the records and events of any wave here, and quick to fill.
const diskBytes = 512 << 20

// ownDisk sets up a provisioner with its data on its own disk, and a wave.
func (r *run) ownDisk(nodes int) *testdisk.Disk {
	r.Helper()
	disk := testdisk.New(r.T, diskBytes)
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.data = filepath.Join(disk.Dir, "data")
	if err := os.Mkdir(r.d.data, 0o700); err != nil {
		r.Fatal(err)
	}
	r.d.edit("prov/provisioner.yaml", "data_dir: data", "data_dir: "+r.d.data)
	r.d.serve()
	r.enroll(nodes, r.d.address())
	return disk
}

// fullDisk fills the provisioner's disk, and frees it later.
func fullDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	disk.Fill(0)
	r.d.p.waitFor("alarm raised", "free some space") // the latter by a start after a failed write
	hold(lasting(2*time.Second, 20*time.Second))
	disk.Free()
	r.recovers()
	r.settle()
}

// readOnlyDisk makes the kernel find an error on the provisioner's disk and remount it read-only, then mounts it
// again. In between the mount point is an empty directory.
func readOnlyDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	disk.Fail()
	r.d.p.waitFor("the provisioner stops, so that it is restarted")
	hold(lasting(2*time.Second, 20*time.Second))
	disk.RemountAfter(func() { hold(lasting(time.Second, 5*time.Second)) })
	r.recovers()
	r.settle()
}

// lateDisk freezes the store's file system again and again: writes are acknowledged when it continues, if the writer
// still waits.
func lateDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	for i := range 3 {
		r.somewhere(0.1+0.2*float64(i), 0.2+0.2*float64(i))
		thaw := disk.Freeze()
		// The last one is longer than any wait for a reply.
		hold(lasting(700*time.Millisecond, time.Duration(i+1)*7*time.Second))
		thaw()
		r.recovers()
	}
	r.settle()
}
