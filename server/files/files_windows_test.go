package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"muster/server/files"
)

// replace puts a set in force. It panics instead of the given step.
func replace(t *testing.T, cfg files.Config, version string, steps int) {
	t.Helper()
	cfg.Step = func(string) {
		if steps--; steps < 0 {
			panic("killed")
		}
	}
	d := files.New(cfg)
	err := errors.Join(d.Clean(), d.Make(), d.Check())
	err = errors.Join(err, d.Begin(files.File{Name: "key", Data: []byte(version), Mode: 0o600}))
	err = errors.Join(err, d.Switch([]files.File{
		{Name: "app.conf", Data: []byte(version), Mode: 0o600},
		{Name: "more/a", Data: []byte(version), Mode: 0o644},
	}, "key"), d.Clean())
	if err != nil {
		t.Fatal(err)
	}
}

// The process ends after each step of a replacement. Once the next one has cleaned up, all files are of one set.
func TestAnEndInAnyStepLeavesOneSet(t *testing.T) {
	t.Parallel()
	const never = 1000
	for steps, ended := 0, true; ended; steps++ {
		top := t.TempDir()
		cfg := files.Config{Dir: filepath.Join(top, "etc", "ssl")}
		cfg.Links = map[string]string{"app.conf": filepath.Join(top, "etc", "app.conf")}
		replace(t, cfg, "1", never)
		func() {
			defer func() { ended = recover() != nil }()
			replace(t, cfg, "2", steps)
		}()
		d := files.New(cfg)
		if err := d.Clean(); err != nil {
			t.Fatalf("Clean after %d steps: %v", steps, err)
		}
		var versions string
		for _, name := range []string{"key", "app.conf", "more/a"} {
			b, err := os.ReadFile(d.Path(name))
			versions += fmt.Sprint(string(b), err)
		}
		if versions != "1<nil>1<nil>1<nil>" && versions != "2<nil>2<nil>2<nil>" {
			t.Errorf("after %d steps: %s", steps, versions)
		}
		if kept, _ := filepath.Glob(filepath.Join(top, "etc", "*.before-*")); len(kept) > 0 {
			t.Errorf("after %d steps: %v kept, which no person wrote", steps, kept)
		}
		replace(t, cfg, "3", never)
		if b, err := os.ReadFile(filepath.Join(top, "etc", "app.conf")); string(b) != "3" {
			t.Errorf("after %d steps, the next set: %q, %v", steps, b, err)
		}
	}
}

// A person edits a file in place, or replaces it.
func TestWhatAPersonWroteIsKept(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(at string) error{
		"in place": func(at string) error { return os.WriteFile(at, []byte("mine"), 0o600) },
		"replaced": func(at string) error {
			return errors.Join(os.WriteFile(at+".new", []byte("mine"), 0o600), os.Rename(at+".new", at))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			at, kept := filepath.Join(top, "app.conf"), ""
			cfg := files.Config{
				Dir:   filepath.Join(top, "ssl"),
				Links: map[string]string{"app.conf": at},
				Kept:  func(_, copied string) { kept = copied },
			}
			replace(t, cfg, "1", 1000)
			if err := edit(at); err != nil {
				t.Fatal(err)
			}
			replace(t, cfg, "2", 1000)
			b, err := os.ReadFile(at)
			mine, unkept := os.ReadFile(kept)
			if string(b) != "2" || string(mine) != "mine" {
				t.Errorf("%q, %v is in force, %q, %v kept", b, err, mine, unkept)
			}
		})
	}
}
