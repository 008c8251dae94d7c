package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"muster/jwt"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){program: main}) }

// TestScripts runs testdata/script. Beside testscript's own commands there is
// `waitfor FILE`, which waits until a file exists, and `exits N program
// args...`, which wants exactly that exit status.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "exits": exits},
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", os.Getenv("GORACE")) // how long it sleeps at the end
			return os.WriteFile(filepath.Join(env.WorkDir, "provisioning.jwt"), []byte(sign(t)), 0o600)
		},
	})
}

func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s does not come to exist", args[0])
		}
	}
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	status := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		status = strconv.Itoa(exit.ExitCode())
	}
	if status != args[0] {
		ts.Fatalf("exit status %s, want %s", status, args[0])
	}
}

// TestAgentSurvivesLossOfItsLogReader closes the pipe of the agent's log. The agent runs on, and exits with 0 on SIGTERM.
func TestAgentSurvivesLossOfItsLogReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := filepath.Join(dir, "provisioning.jwt")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(token+".new", []byte(text), 0o600), os.Rename(token+".new", token)); err != nil {
			t.Fatal(err)
		}
	}
	write(sign(t))
	log, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	agent := exec.CommandContext(ctx, os.Args[0])
	agent.Args = []string{program, "run", "--config", filepath.Join(dir, "server.conf"), "--token-file", token,
		"--ssl-dir", filepath.Join(dir, "ssl"), "--identity", "web1.example.net"}
	agent.Stderr = w
	if err := errors.Join(agent.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "enrollment failed") {
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	broker, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = broker.Close() })
	defer stop()
	write(signFor(t, broker.Addr().String()))
	for range 2 { // between the two, the agent logs why the first failed
		conn, err := broker.Accept()
		if err != nil {
			t.Fatalf("the agent does not come (again): %v", errors.Join(err, agent.Wait()))
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(agent.Process.Signal(syscall.SIGTERM), agent.Wait()); err != nil {
		t.Errorf("the agent ended with %v, want status 0", err)
	}
}

// sign returns a token for a broker that does not run: port 9 is discard.
func sign(t *testing.T) string {
	t.Helper()
	return signFor(t, "127.0.0.1:9")
}

func signFor(t *testing.T, brokers string) string {
	t.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize)))
	text, err := jwt.Sign(key, jwt.Claims{Token: "toomanysecrets", Brokers: brokers, Default: true, Purpose: jwt.Purpose})
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n"
}
