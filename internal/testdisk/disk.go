// Package testdisk mounts file systems that tests can fill, freeze and break.
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

// A Disk is an ext4 file system on a loop device over a sparse file.
type Disk struct {
	Dir string // mount point

	t     testing.TB
	image string
	full  []string // files that fill it
}

// New mounts a new file system of this many bytes until the test ends. It skips the test without root or with -short.
func New(t testing.TB, bytes int64) *Disk {
	t.Helper()
	testproc.Needs(t, "mkfs.ext4", "losetup", "mount", "fsfreeze")
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
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

// mount uses a new loop device, since the old one may still have its failure.
func (d *Disk) mount() {
	d.t.Helper()
	device := strings.TrimSpace(d.run("losetup", "--find", "--show", d.image))
	defer d.run("losetup", "--detach", device) // takes effect at unmount
	d.run("mount", "-o", "errors=remount-ro", device, d.Dir)
}

// Fill fills the disk until leave bytes are free.
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
		// Blocks are reserved, not written, so the image stays small.
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

// Free deletes what Fill has written.
func (d *Disk) Free() {
	d.t.Helper()
	for _, path := range d.full {
		if err := os.Remove(path); err != nil {
			d.t.Fatal(err)
		}
	}
	d.full = nil
}

// Freeze blocks writers, which cannot even be killed, until thaw is called or the test ends. Repeating thaw is
// harmless.
func (d *Disk) Freeze() (thaw func()) {
	d.t.Helper()
	d.run("fsfreeze", "--freeze", d.Dir)
	thaw = func() { _ = exec.Command("fsfreeze", "--unfreeze", d.Dir).Run() } // fails if the disk is not frozen
	d.t.Cleanup(thaw)
	return thaw
}

// Fail makes the kernel detect an error and remount the file system read-only, also for open files.
//
// Fail freezes the disk meanwhile: a sync during which ext4 aborts its journal may succeed without storing data (10 of
// 40 failures under three writers; Linux 6.18). No program can prevent that.
func (d *Disk) Fail() {
	d.t.Helper()
	device := d.run("findmnt", "-n", "-o", "SOURCE", d.Dir)
	defer d.Freeze()()
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(device)), "trigger_fs_error"),
		[]byte("1"), 0); err != nil {
		d.t.Fatal(err)
	}
}

// Remount mounts the disk again.
func (d *Disk) Remount() {
	d.t.Helper()
	d.RemountAfter(func() {})
}

// RemountAfter unmounts the disk, calls away, and mounts the disk again.
func (d *Disk) RemountAfter(away func()) {
	d.t.Helper()
	if err := unix.Unmount(d.Dir, unix.MNT_DETACH); err != nil {
		d.t.Fatal(err)
	}
	away()
	d.mount()
}

func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
