package chaos_test

import (
	"os"
	"path/filepath"
	"time"

	"muster/internal/testdisk"
)

// diskBytes is the size of the provisioner's disk: enough for the records and
// events of any wave here, and quick to fill.
const diskBytes = 512 << 20

// ownDisk sets up a provisioner whose data is on a disk of its own, and a wave.
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

// fullDisk takes the last byte of the provisioner's disk, and gives it back.
func fullDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	disk.Fill(0)
	r.d.p.waitFor("alarm raised", "free some space") // the latter from a start after the end by a failed write
	hold(lasting(2*time.Second, 20*time.Second))
	disk.Free()
	r.recovers()
	r.settle()
}

// readOnlyDisk has the kernel find an error on the provisioner's disk, whereupon
// it makes it read-only; it is mounted again later. In between, its place is an
// empty directory, where the provisioner looks for its records.
func readOnlyDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	r.somewhere(0.2, 0.5)
	disk.Fail()
	r.d.p.waitFor("the provisioner stops, so that it is restarted")
	hold(lasting(2*time.Second, 20*time.Second))
	disk.MendAfter(func() { hold(lasting(time.Second, 5*time.Second)) })
	r.recovers()
	r.settle()
}

// lateDisk freezes the file system of the store over and over: what is written
// meanwhile is acknowledged when it goes on, if anybody still waits.
func lateDisk(r *run) {
	disk := r.ownDisk(size(150, 5000))
	r.w.start()
	for i := range 3 {
		r.somewhere(0.1+0.2*float64(i), 0.2+0.2*float64(i))
		thaw := disk.Freeze()
		// The last one is longer than any answer is waited for.
		hold(lasting(700*time.Millisecond, time.Duration(i+1)*7*time.Second))
		thaw()
		r.recovers()
	}
	r.settle()
}
