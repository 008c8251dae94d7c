package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/internal/keyfile"
)

// TestMain makes the test binary stand in for muster: the scripts, and the
// tests that call command, run the real main in processes of its own.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != program {
		// The tests: what the shell has for its own muster is none of theirs.
		for _, name := range []string{"MUSTER_URL", "MUSTER_LOGIN", "MUSTER_LOGIN", "MUSTER_PASSPHRASE"} {
			_ = os.Unsetenv(name) // it cannot fail for these names
		}
	}
	keyfile.Rounds = 1000 // of keys that these tests encrypt; TestEncrypted of package keyfile has the real figure
	testscript.Main(m, map[string]func(){program: main})
}

// TestScripts runs testdata/script. Beside testscript's own commands there is
//
//	exits N program args...
//
// which runs a program like exec and wants exactly that exit status.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", os.Getenv("GORACE")) // how long it sleeps at the end
			return nil
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// command returns muster in a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = program // by which testscript.Main knows what to run
	cmd.Dir = t.TempDir()
	return cmd
}
