package inputfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/inputfile"
)

func TestReadFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{"empty": 0, "largest": inputfile.MaxBytes,
		"too large": inputfile.MaxBytes + 1} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := inputfile.ReadText(path, inputfile.Typed)
		if size <= inputfile.MaxBytes {
			if err != nil || len(b) != size {
				t.Errorf("%s: %d bytes, %v, want %d", name, len(b), err, size)
			}
		} else if err == nil || b != nil || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "1048576 bytes") {
			t.Errorf("%s: %d bytes, %v, want the path and the limit", name, len(b), err)
		}
	}
	if _, err := inputfile.ReadText("/dev/zero", inputfile.Typed); err == nil || !strings.Contains(err.Error(), "/dev/zero: more than") {
		t.Errorf("what has no end: %v", err)
	}
	if _, err := inputfile.ReadText(filepath.Join(dir, "missing"), inputfile.Typed); !os.IsNotExist(err) {
		t.Errorf("what is missing: %v", err)
	}
}
