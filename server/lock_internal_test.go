//go:build linux

package server

import (
	"errors"
	"os"
	"testing"
)

// A file that cannot be written is locked all the same, as on a disk that has become
// read-only: here a program that runs. Two agents still exclude each other.
func TestALockThatCannotBeWrittenIsOne(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(self, os.O_RDWR, 0); err == nil {
		_ = f.Close()
		t.Fatalf("%s can be written", self)
	}
	held, err := lockFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile(self); !errors.Is(err, ErrLocked) {
		t.Errorf("the second lock: %v, want %v", err, ErrLocked)
	}
	held.release()
	if held, err = lockFile(self); err != nil {
		t.Fatal(err)
	}
	held.release()
}
