package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/provisioner/backup"
)

// run runs a daemon of the setup until it serves, and returns what it ended
// with.
func run(t *testing.T, dir string) error {
	t.Helper()
	d, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return d.Run(ctx, cancel)
}

// edit replaces a text in provisioner.yaml.
func edit(t *testing.T, dir, old, replacement string) {
	t.Helper()
	path := filepath.Join(dir, "provisioner.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("provisioner.yaml has no %q", old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPathsOfJournalAndWatermarks(t *testing.T) {
	t.Parallel()
	dir, elsewhere := install(t, nil), filepath.Join(t.TempDir(), "muster.journal")
	edit(t, dir, "  # journal: data/revocations.journal", "  journal: "+elsewhere)
	if err := run(t, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{"data/revocations.journal": false, "data/crl.pem": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestADiskThatIsNotMounted: no new installation is made, and the unit starts the provisioner again.
func TestADiskThatIsNotMounted(t *testing.T) {
	t.Parallel()
	dir := install(t, nil)
	edit(t, dir, "  # journal: data/revocations.journal", "  journal: "+filepath.Join(t.TempDir(), "muster.journal"))
	if err := run(t, dir); err != nil {
		t.Fatal(err)
	}
	data, unmounted := filepath.Join(dir, "data"), filepath.Join(dir, "unmounted")
	if err := os.Rename(data, unmounted); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"is missing", "is empty"} {
		err := run(t, dir)
		if err == nil || daemon.NeedsOperator(err) || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), "is its disk not mounted?") {
			t.Errorf("data_dir %s: Run = %v", what, err)
		}
		if entries, _ := os.ReadDir(data); len(entries) > 0 {
			t.Errorf("data_dir %s: the provisioner made %v", what, entries)
		}
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(data), os.Rename(unmounted, data)); err != nil {
		t.Fatal(err)
	}
	if err := run(t, dir); err != nil {
		t.Errorf("mounted again: %v", err)
	}
}

// TestAJournalThatCannotBeTrustedStopsTheStart includes --validate.
func TestAJournalThatCannotBeTrustedStopsTheStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		content string
		mode    os.FileMode
		want    string // "" if it starts
	}{
		"empty":              {"", 0o600, ""},
		"an unfinished line": {`{"schema":1,"id":"x`, 0o600, ""},
		"no entry":           {"hello\n", 0o600, "line 1"},
		"world-readable":     {"", 0o644, "chmod 600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := install(t, nil)
			path := filepath.Join(dir, "data/revocations.journal")
			if err := errors.Join(os.WriteFile(path, []byte(tt.content), tt.mode),
				os.Chmod(path, tt.mode)); err != nil {
				t.Fatal(err)
			}
			err := run(t, dir)
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path)) {
				t.Errorf("Run = %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("in use", func(t *testing.T) {
		t.Parallel()
		dir := install(t, nil)
		j, err := backup.OpenJournal(filepath.Join(dir, "data/revocations.journal"))
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if err := run(t, dir); !errors.Is(err, backup.ErrJournalInUse) {
			t.Errorf("Run = %v, want %v", err, backup.ErrJournalInUse)
		}
	})
}

func TestCRLValidityIsBounded(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"10m": true, "720h": true, "9m59s": false, "721h": false, "0s": false} {
		dir := install(t, nil)
		edit(t, dir, "  # validity: 24h", "  validity: "+value)
		_, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "crl.validity") {
			t.Errorf("%s: %v", value, err)
		}
	}
}
