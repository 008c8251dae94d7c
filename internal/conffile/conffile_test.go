package conffile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/conffile"
)

func TestReadFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{"empty": 0, "largest": conffile.MaxFileBytes,
		"too large": conffile.MaxFileBytes + 1} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := conffile.ReadFile(path)
		if size <= conffile.MaxFileBytes {
			if err != nil || len(b) != size {
				t.Errorf("%s: %d bytes, %v, want %d", name, len(b), err, size)
			}
		} else if err == nil || b != nil || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "1048576 bytes") {
			t.Errorf("%s: %d bytes, %v, want the path and the limit", name, len(b), err)
		}
	}
	if _, err := conffile.ReadFile("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero: more than") {
		t.Errorf("what has no end: %v", err)
	}
	if _, err := conffile.ReadFile(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("what is missing: %v", err)
	}
}
