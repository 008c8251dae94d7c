package keyfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/testproc"
)

// TestGroupReadsSecretsOfRoot reads files as user 65532 in the groups 65532 and 65533, as in a pod with fsGroup.
func TestGroupReadsSecretsOfRoot(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	type file struct {
		owner, group int
		mode         fs.FileMode
	}
	cases := map[file]bool{
		{0, 65533, 0o440}:     true,
		{0, 65533, 0o640}:     true,
		{0, 65532, 0o440}:     true,
		{65532, 0, 0o600}:     true,
		{0, 65533, 0o660}:     false,
		{0, 65533, 0o444}:     false,
		{0, 65533, 0o450}:     false,
		{0, 65534, 0o444}:     false,
		{1, 65533, 0o440}:     false,
		{65532, 65533, 0o440}: false,
	}
	path := func(f file) string { return filepath.Join(dir, fmt.Sprintf("%d-%d-%o", f.owner, f.group, f.mode)) }
	for f := range cases {
		write(t, dir, filepath.Base(path(f)), []byte("hush"), 0o600)
		if err := errors.Join(os.Chown(path(f), f.owner, f.group), os.Chmod(path(f), f.mode)); err != nil {
			t.Fatal(err)
		}
	}
	inPod(t, func() {
		for f, want := range cases {
			got, err := keyfile.ReadSecret(path(f), inputfile.Configured)
			switch {
			case want && (err != nil || string(got) != "hush"):
				t.Errorf("%+v: %q, %v, want its content", f, got, err)
			case !want && (!errors.Is(err, keyfile.ErrExposed) || got != nil):
				t.Errorf("%+v: %q, %v, want %v", f, got, err, keyfile.ErrExposed)
			case !want && f.mode&0o077 == 0o040 && !strings.Contains(err.Error(), "only files of root may be open to a group"):
				t.Errorf("%+v: %v, want the rule", f, err)
			}
		}
	})
	_, err := keyfile.ReadSecret(path(file{0, 65533, 0o440}), inputfile.Configured)
	if !errors.Is(err, keyfile.ErrExposed) {
		t.Errorf("as root: %v, want %v", err, keyfile.ErrExposed)
	}
}

// TestSecretOfKubernetes reads a Secret as kubelet mounts it for a pod with fsGroup 65533, and again after its change.
func TestSecretOfKubernetes(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	dir := t.TempDir()
	publish := func(version string) {
		t.Helper()
		next := filepath.Join(dir, "..2026_"+version)
		file := filepath.Join(next, "key")
		link := filepath.Join(dir, "..data_tmp")
		if err := errors.Join(os.Mkdir(next, 0o750), os.WriteFile(file, []byte(version), 0o440),
			os.Chown(next, 0, 65533), os.Chown(file, 0, 65533), os.Chmod(next, 0o750|fs.ModeSetgid), os.Chmod(file, 0o440),
			os.Symlink(filepath.Base(next), link), os.Rename(link, filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chown(dir, 0, 65533),
		os.Chmod(dir, 0o777|fs.ModeSetgid|fs.ModeSticky), os.Symlink("..data/key", filepath.Join(dir, "key"))); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"one", "two"} {
		publish(version)
		inPod(t, func() {
			path := filepath.Join(dir, "key")
			if got, err := keyfile.ReadSecret(path, inputfile.Configured); err != nil || string(got) != version {
				t.Errorf("ReadSecret = %q, %v, want %q", got, err, version)
			}
			if err := inputfile.Safe(path); err != nil {
				t.Errorf("Safe = %v", err)
			}
		})
	}
}

// inPod calls do on a thread of its own, as another user.
func inPod(t *testing.T, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// Package syscall would change all threads.
		group, id := uint32(65533), uintptr(65532)
		_, _, failed := unix.RawSyscall(unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&group)), 0)
		if failed == 0 {
			_, _, failed = unix.RawSyscall(unix.SYS_SETRESGID, id, id, id)
		}
		if failed == 0 {
			_, _, failed = unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)
		}
		if failed != 0 {
			done <- failed
			return
		}
		do()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
