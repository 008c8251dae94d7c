package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

// inChild says that the process is one that a test has started, and may say for what.
const inChild = "MUSTER_TEST_CHILD"

// TestTheSecondSignalEndsTheProcess, whatever it still has to do after the first.
func TestTheSecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(inChild) != "" {
		child := cli.Program{Name: "child", Add: func(app *kingpin.Application, verbs cli.Verbs) {
			verbs[app.Command("work", "").FullCommand()] = cli.CleansUp(func(ctx context.Context) error {
				fmt.Fprintln(os.Stdout, "working")
				<-ctx.Done()
				fmt.Fprintln(os.Stdout, "ending")
				<-time.After(time.Hour) // longer than a person waits before asking again
				return nil
			})
		}}
		child.Run([]string{"work"})
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inChild+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	hear := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the child says %q, want %q", lines.Text(), want)
		}
	}
	hear("working")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	hear("ending")
	again := time.NewTicker(10 * time.Millisecond) // as people do: it takes the process a moment to stop listening
	defer again.Stop()
	go func() {
		for cmd.Process.Signal(os.Interrupt) == nil {
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("Wait = %v, want the end by a signal", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, want %v", exit, syscall.SIGINT)
	}
}
