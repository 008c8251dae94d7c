package setup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/setup"
)

// rolled makes the next authority of a setup.
func rolled(t *testing.T, dir string) *setup.Rolled {
	t.Helper()
	r, err := (&setup.Roll{Config: filepath.Join(dir, "provisioner.yaml")}).Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRollIsTheOwnersOfTheOldKey rolls over as root what belongs to the user that
// the provisioner runs as, who has to be able to read it afterwards.
func TestRollIsTheOwnersOfTheOldKey(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const uid, gid = 12345, 23456
	dir := install(t, nil)
	each := func(do func(path string, info fs.FileInfo)) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil {
				do(path, info)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	each(func(path string, _ fs.FileInfo) {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Chmod(filepath.Join(dir, "provisioner.yaml"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := rolled(t, dir).Write(daemon.Options{Compiled: &compiled}); err != nil {
		t.Fatal(err)
	}
	files := 0
	each(func(path string, info fs.FileInfo) {
		files++
		stat := info.Sys().(*syscall.Stat_t)
		if stat.Uid != uid || stat.Gid != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
		}
		if strings.HasSuffix(path, "-key.pem") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if filepath.Base(path) == "provisioner.yaml" && info.Mode().Perm() != 0o640 {
			t.Errorf("%s has mode %v, want what it had", path, info.Mode())
		}
	})
	if files < 20 {
		t.Errorf("only %d files", files)
	}
}

// TestRollIsWrittenOnceOrNotAtAll interferes with the change of provisioner.yaml
// in the ways in which it can go wrong.
func TestRollIsWrittenOnceOrNotAtAll(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before  func(t *testing.T, config string)
		between func(t *testing.T, config string)
		want    error  // nil: accepted, unless says
		says    string // of the error
	}{
		"nothing in the way": {},
		"a run that was killed before the rename": {between: func(t *testing.T, config string) {
			if err := os.Link(config, config+".before-ca-2"); err != nil {
				t.Fatal(err)
			}
			writeText(t, filepath.Join(filepath.Dir(config), ".provisioner.yaml.new"), "half a fi")
		}},
		"something else has the name of the file that is kept": {between: func(t *testing.T, config string) {
			writeText(t, config+".before-ca-2", "precious")
		}, says: "is there and is another file"},
		"somebody edits it meanwhile": {between: func(t *testing.T, config string) {
			writeText(t, config, readText(t, config)+"# a note\n")
		}, says: "changed meanwhile"},
		"it says that there are none before": {before: func(t *testing.T, config string) {
			writeText(t, config, strings.Replace(readText(t, config), "  key: ca/issuing-key.pem\n", "  key: ca/issuing-key.pem\n  previous: []\n", 1))
		}, want: conffile.ErrEdit},
		"quoted": {before: func(t *testing.T, config string) {
			writeText(t, config, strings.Replace(readText(t, config), "ca/root.pem", `"ca/root.pem" # pinned`, 1))
		}},
		"a link": {before: func(t *testing.T, config string) {
			if err := errors.Join(os.Rename(config, config+".real"), os.Symlink("provisioner.yaml.real", config)); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := install(t, nil)
			config := filepath.Join(dir, "provisioner.yaml")
			if tt.before != nil {
				tt.before(t, config)
			}
			r := rolled(t, dir)
			if tt.between != nil {
				tt.between(t, config)
			}
			was := readText(t, config)
			kept, err := r.Write(daemon.Options{Compiled: &compiled})
			if (err == nil) != (tt.want == nil && tt.says == "") || tt.want != nil && !errors.Is(err, tt.want) || tt.says != "" && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("Write = %v, want %v %q", err, tt.want, tt.says)
			}
			if _, err := os.Lstat(filepath.Join(dir, ".provisioner.yaml.new")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a temporary file is left: %v", err)
			}
			if err != nil {
				if got := readText(t, config); got != was {
					t.Errorf("refused, and provisioner.yaml is now\n%s", got)
				}
				return
			}
			if got := readText(t, kept); got != was {
				t.Errorf("what was kept is not what was there:\n%s", got)
			}
			if _, err := daemon.Load(config, daemon.Options{Compiled: &compiled}); err != nil {
				t.Errorf("it does not load: %v", err)
			}
			if got := readText(t, config); !strings.Contains(got, "  root: ca-2/root.pem") || !strings.Contains(got, "cross: ca-2/cross.pem\n") {
				t.Errorf("provisioner.yaml is\n%s", got)
			}
		})
	}
}
