package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// TestWhatPassesIsNoDamage tells why a file cannot be read just now from what is wrong
// with it: the one must not cost a good confirmation, the other would block it for ever.
func TestWhatPassesIsNoDamage(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOMEM: true, syscall.EIO: false, syscall.EACCES: false, fs.ErrInvalid: false,
	} {
		if got := passing(fmt.Errorf("applied.json: %w", &os.PathError{Op: "open", Path: "applied.json", Err: err})); got != want {
			t.Errorf("%v passes: %v, want %v", err, got, want)
		}
	}
	if _, err := decodePending([]byte("{")); err == nil || passing(err) || passing(errors.New("more than 4096 bytes")) {
		t.Errorf("damage passes: %v", err)
	}
}
