// Package testdisk is a disk that can be filled and that can fail, for tests.
package testdisk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/testproc"
)

// A Disk is a file system of its own, for what only happens to disks: an ext4
// in a sparse file, mounted over a loop device. It can be filled, and it can
// fail under those who use it, as a kernel makes it fail.
type Disk struct {
	Dir string // where it is mounted

	t     testing.TB
	image string
	full  []string // files that fill it
}

// New mounts a new file system of so many bytes; the file that it is in
// takes up only what is written. It is unmounted when the test ends. Only root
// can mount: without it, and with -short, the test is skipped.
func New(t testing.TB, bytes int64) *Disk {
	t.Helper()
	testproc.Needs(t, "mkfs.ext4", "losetup", "mount", "fsfreeze")
	if os.Getuid() != 0 {
		t.Skip("mounting a file system takes root")
	}
	d := &Disk{t: t, image: filepath.Join(t.TempDir(), "disk.img")}
	d.Dir = d.image + ".mounted"
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d.run("mkfs.ext4", "-q", "-m", "0", d.image)
	d.mount()
	t.Cleanup(func() { _ = unix.Unmount(d.Dir, unix.MNT_DETACH) })
	return d
}

// mount mounts the image over a loop device of its own: one that is still in
// use for a mount before would bring back that one's failure.
func (d *Disk) mount() {
	d.t.Helper()
	device := strings.TrimSpace(d.run("losetup", "--find", "--show", d.image))
	defer d.run("losetup", "--detach", device) // once it is no longer mounted
	d.run("mount", "-o", "errors=remount-ro", device, d.Dir)
}

// Fill takes up the space but for so many bytes.
func (d *Disk) Fill(leave int64) {
	d.t.Helper()
	path := filepath.Join(d.Dir, fmt.Sprintf("ballast%d", len(d.full)))
	f, err := os.Create(path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.full = append(d.full, path)
	var fs unix.Statfs_t
	if err := unix.Statfs(d.Dir, &fs); err != nil {
		d.t.Fatal(err)
	}
	left := int64(fs.Bavail)*fs.Bsize - leave
	for size := left; size > 0; {
		end, err := f.Seek(0, 2)
		if err != nil {
			d.t.Fatal(err)
		}
		// Blocks are reserved, not written: the image stays small.
		if unix.Fallocate(int(f.Fd()), 0, end, size) != nil {
			size /= 2
			continue
		}
		if _, err := f.Seek(end+size, 0); err != nil {
			d.t.Fatal(err)
		}
		if leave > 0 {
			break
		}
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// Free takes away what Fill has written.
func (d *Disk) Free() {
	d.t.Helper()
	for _, path := range d.full {
		if err := os.Remove(path); err != nil {
			d.t.Fatal(err)
		}
	}
	d.full = nil
}

// Freeze has whoever writes to the disk wait until thaw is called: those cannot even
// be killed. The end of the test thaws it; more than once is harmless.
func (d *Disk) Freeze() (thaw func()) {
	d.t.Helper()
	d.run("fsfreeze", "--freeze", d.Dir)
	thaw = func() { _ = exec.Command("fsfreeze", "--unfreeze", d.Dir).Run() } // fails if it is not frozen any more
	d.t.Cleanup(thaw)
	return thaw
}

// Fail has the kernel find an error on the disk: it makes the file system
// read-only, also for those who have files on it open.
//
// It is frozen at that moment. A sync that is under way when ext4 aborts its
// journal may be acknowledged and lost (of 40 such failures under three writers
// 10 lost one, with no program of ours; Linux 6.18): what no program can help
// is not to be held against one.
func (d *Disk) Fail() {
	d.t.Helper()
	device := d.run("findmnt", "-n", "-o", "SOURCE", d.Dir)
	defer d.Freeze()()
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(device)), "trigger_fs_error"), []byte("1"), 0); err != nil {
		d.t.Fatal(err)
	}
}

// Mend mounts the disk anew at the same place.
func (d *Disk) Mend() {
	d.t.Helper()
	d.MendAfter(func() {})
}

// MendAfter is Mend with something that happens while the disk is not mounted, and
// where it was is an empty directory.
func (d *Disk) MendAfter(away func()) {
	d.t.Helper()
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
		d.t.Fatal(err)
	}
	away()
	d.mount()
}

// run runs a command to its end and returns what it printed.
func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
