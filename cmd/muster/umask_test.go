package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsArePrivateUnderAnyUmask runs a fleet with umask 0. Other users can read no key, token or pushed
// configuration, and nothing in the store.
func TestSecretsArePrivateUnderAnyUmask(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	self := command(t, "demo")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 0; exec "$0" "$@"`, filepath.Join(dir, program), "demo", "--nodes", "3", "--files", filepath.Join(dir, "kept"), "-o", "json")
	if err := os.Symlink(self.Path, filepath.Join(dir, program)); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	secrets := 0
	err := filepath.WalkDir(filepath.Join(dir, "kept"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() {
			if filepath.Base(path) == "data" {
				secrets++
				if info.Mode().Perm() != 0o700 {
					t.Errorf("%s has mode %v", path, info.Mode())
				}
				return filepath.SkipDir
			}
			if info.Mode().Perm()&0o022 != 0 {
				t.Errorf("%s has mode %v: other users may put files there", path, info.Mode())
			}
			return nil
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		secret := bytes.Contains(b, []byte("PRIVATE KEY")) || bytes.HasPrefix(b, []byte("eyJ")) || strings.HasSuffix(path, "/server.conf") && strings.Contains(path, "/nodes/")
		if secret {
			secrets++
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
		if info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s has mode %v: other users may write it", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if secrets < 4+3*2 {
		t.Errorf("only %d secrets found", secrets)
	}
}
