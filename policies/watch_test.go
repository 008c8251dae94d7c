package policies_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/policies"
)

// saying returns a policy that allows every node for the given reason.
func saying(reason string) string { return allowAll + "\nreasons contains \"" + reason + "\"\n" }

// A logBuffer is a log that can be read while it is written to.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// eventually waits until ok is true, for half a minute at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		}
	}
}

// run loads the policy at path, watches it, and returns it with its log. It is
// known to watch when run returns.
func run(t *testing.T, path string) (*policies.Engine, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	e, err := policies.Load(policies.Config{Paths: []string{path}, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return e, log
}

// says waits until the policy in use gives the reason.
func says(t *testing.T, e *policies.Engine, reason string) {
	t.Helper()
	eventually(t, "the policy says "+reason, func() bool {
		d, err := e.Decide(t.Context(), stranger())
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Reasons) == 1 && d.Reasons[0] == reason
	})
}

// Each way of changing a file that people and programs have.
func TestRunReloads(t *testing.T) {
	t.Parallel()
	inDir := func(dir string) string { return dir }
	inFile := func(dir string) string { return filepath.Join(dir, "p.rego") }
	tests := map[string]struct {
		path   func(dir string) string
		change func(t *testing.T, dir, content string)
	}{
		"written in place, directory": {inDir, func(t *testing.T, dir, content string) {
			write(t, filepath.Join(dir, "p.rego"), content)
		}},
		"written in place, file": {inFile, func(t *testing.T, dir, content string) {
			write(t, filepath.Join(dir, "p.rego"), content)
		}},
		"renamed over, directory": {inDir, renameOver},
		"renamed over, file":      {inFile, renameOver},
		"moved away first, as vim does": {inFile, func(t *testing.T, dir, content string) {
			p := filepath.Join(dir, "p.rego")
			if err := os.Rename(p, p+"~"); err != nil {
				t.Fatal(err)
			}
			write(t, p, content)
			if err := os.Remove(p + "~"); err != nil {
				t.Fatal(err)
			}
		}},
		"directory replaced": {inDir, func(t *testing.T, dir, content string) {
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "p.rego"), content)
			if err := os.RemoveAll(dir + ".old"); err != nil {
				t.Fatal(err)
			}
		}},
		"file of a new directory": {inDir, func(t *testing.T, dir, content string) {
			if err := os.Remove(filepath.Join(dir, "p.rego")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "sub", "p.rego"), content)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "policies")
			write(t, filepath.Join(dir, "p.rego"), saying("one"))
			e, _ := run(t, tt.path(dir))
			says(t, e, "one")
			// Twice: the way that a file was replaced must not end the watch.
			tt.change(t, dir, saying("two"))
			says(t, e, "two")
			tt.change(t, dir, saying("three"))
			says(t, e, "three")
		})
	}
}

func renameOver(t *testing.T, dir, content string) {
	tmp := filepath.Join(dir, "4913.tmp")
	write(t, tmp, content)
	if err := os.Rename(tmp, filepath.Join(dir, "p.rego")); err != nil {
		t.Fatal(err)
	}
}

// Kubernetes mounts a config map as links through a link that is swapped.
func TestRunConfigMap(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"directory": "", "file": "p.rego"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			publish := func(version string) {
				t.Helper()
				write(t, filepath.Join(dir, ".."+version, "p.rego"), saying(version))
				tmp := filepath.Join(dir, "..data_tmp")
				if err := os.Symlink(".."+version, tmp); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
					t.Fatal(err)
				}
			}
			publish("one")
			if err := os.Symlink("..data/p.rego", filepath.Join(dir, "p.rego")); err != nil {
				t.Fatal(err)
			}
			e, _ := run(t, filepath.Join(dir, path))
			says(t, e, "one")
			publish("two")
			says(t, e, "two")
			publish("three")
			says(t, e, "three")
		})
	}
}

// A policy that is refused changes nothing, is logged once, and the next good
// one is taken.
func TestRunKeepsGoodPolicy(t *testing.T) {
	t.Parallel()
	const refused = "policy not reloaded"
	test := "package muster.enroll_test\n\nimport data.muster.enroll\n\ntest_x if count(enroll.reasons) == 1\n"
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		mend  func(t *testing.T, dir string)
	}{
		"does not compile": {
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "p.rego"), "package muster.enroll\n\nallow if {\n")
			},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.rego"), saying("two")) },
		},
		"fails its tests": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.rego"), allowAll+"\nreasons := []\n") },
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.rego"), saying("two")) },
		},
		"is gone": {
			func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "p.rego")); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.rego"), saying("two")) },
		},
		"is gone with its directory": {
			func(t *testing.T, dir string) {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "p.rego"), saying("two")) },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "policies")
			write(t, filepath.Join(dir, "p.rego"), saying("one"))
			write(t, filepath.Join(dir, "p_test.rego"), test)
			e, log := run(t, dir)
			digest := e.Digest()
			tt.spoil(t, dir)
			eventually(t, "the log says that it was not reloaded", func() bool { return log.count(refused) == 1 })
			says(t, e, "one")
			if e.Digest() != digest {
				t.Errorf("Digest = %s, want %s", e.Digest(), digest)
			}
			if err := e.Reload(t.Context()); err == nil {
				t.Error("Reload = nil, want why not")
			}
			tt.mend(t, dir)
			says(t, e, "two")
			if n := log.count(refused); n != 1 && !strings.HasPrefix(name, "is gone") {
				t.Errorf("%d lines %q, want 1", n, refused)
			}
		})
	}
}
