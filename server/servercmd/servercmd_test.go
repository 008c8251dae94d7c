package servercmd_test

import (
	"crypto/ed25519"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"muster/internal/cli"
	"muster/jwt"
	"muster/server/servercmd"
)

// TestMain runs the verbs as cmd/muster-server does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agent": func() {
		agent := cli.Program{Name: "agent", Add: func(app *kingpin.Application, all cli.Verbs) {
			servercmd.AddRun(app, all)
			servercmd.AddDoctor(app, all)
			servercmd.AddVersion(app, all)
		}}
		os.Exit(agent.Run(os.Args[1:])) //nolint:forbidigo // this is its main
	}})
}

// TestScripts runs testdata/script. Additional commands: `exits N program args...` expects that exit status, `narrow
// N` limits the line length of the last output, `before A B` expects A before B in it.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "narrow": narrow, "before": before},
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", os.Getenv("GORACE")) // how long it sleeps at the end
			key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
			// Port 9 is discard, where nothing listens.
			text, err := jwt.Sign(key, jwt.Claims{
				Token:   "toomanysecrets",
				Brokers: "127.0.0.1:9",
				Default: true,
				Purpose: jwt.Purpose,
			})
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "provisioning.jwt"), []byte(text), 0o600)
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	status := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = exit.ExitCode()
	}
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
}

func narrow(ts *testscript.TestScript, _ bool, args []string) {
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		if n := len(strings.TrimRight(line, "\n")); n > limit {
			ts.Fatalf("%d bytes in a line, limit %d: %s", n, limit, line)
		}
	}
}

func before(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	a, b := strings.Index(text, args[0]), strings.Index(text, args[1])
	if a < 0 || b < a {
		ts.Fatalf("%q at %d, %q at %d", args[0], a, args[1], b)
	}
}
