package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestTheLockOutlivesAFailedTakeover has a journal fail to open its file anew: it is still
// in use, and nobody else's.
func TestTheLockOutlivesAFailedTakeover(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if err := j.Mark(Backup{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil { // the same file
			t.Fatal(err)
		}
	}
	write(append([]byte("x"), whole[1:]...)) // as a disk may give it back
	if err := j.reopen(nil); err == nil {
		t.Fatal("damage was taken for the journal")
	}
	write(whole) // the disk is well again, and we go on with the file that we have
	if err := j.Mark(Backup{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	other, err := Open(path)
	if err == nil {
		_ = other.Close()
	}
	if !errors.Is(err, ErrInUse) {
		t.Errorf("a second process opens it: %v, want %v", err, ErrInUse)
	}
}
