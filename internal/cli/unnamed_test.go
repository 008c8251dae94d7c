//go:build linux

package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/cli"
)

// TestNothingIsLeftOfAKilledWriter kills a process that has written half a file.
func TestNothingIsLeftOfAKilledWriter(t *testing.T) {
	t.Parallel()
	if path := os.Getenv(inChild); path != "" {
		_ = cli.WriteNewBy(path, 0o600, false, func(w io.Writer) error {
			_, err := w.Write(make([]byte, 1<<20))
			fmt.Fprintln(os.Stdout, "half of it:", err)
			<-time.After(time.Hour) // until it is killed
			return err
		})
		return
	}
	dir := t.TempDir()
	if fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
		t.Skipf("no files without names in %s: %v", dir, err)
	} else if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inChild+"="+filepath.Join(dir, "backup"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "half of it: <nil>\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	leftOvers(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	leftOvers(t, dir)
}
