package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/provisioner/journal"
)

// TestAReplacedFileIsAFailedWrite has nothing, or another file, in the journal's place: what is not in the
// file of that name counts for nothing, and nothing more is written.
func TestAReplacedFileIsAFailedWrite(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".away") },
		"a copy": func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, nil, 0o600))
		},
		"a directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "journal")
			j := open(t, path)
			if err := j.Append(entry("a")); err != nil {
				t.Fatal(err)
			}
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := j.Append(entry("b")); !errors.Is(err, journal.ErrFailed) || !strings.Contains(err.Error(), "removed or replaced") {
					t.Errorf("written, and in no journal: %v", err)
				}
			}
			select {
			case <-j.Failed():
			default:
				t.Error("nothing is said of the failed write")
			}
		})
	}
}
