package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
)

// killed is the environment variable with the store's directory for the killed copy of this program.
const killed = "MUSTER_STORE_TEST_KILLED"

// TestKilledProcessKeepsAcknowledgedWrites kills a broker under many writers, which print what was acknowledged.
func TestKilledProcessKeepsAcknowledgedWrites(t *testing.T) {
	if dir := os.Getenv(killed); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	for round := range 2 {
		out := &saying{enough: make(chan struct{}), lines: (round + 1) * 3 * crowd}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcessKeepsAcknowledgedWrites$")
		cmd.Env = append(os.Environ(), killed+"="+dir)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-out.enough:
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-ended
		case err := <-ended:
			t.Fatalf("it ended by itself: %v: %s", err, out.text.String())
		}
		lines := strings.Split(out.text.String(), "\n")
		var outcomes []outcome
		for _, line := range lines[:len(lines)-1] { // the last one may be cut
			attempt, text, ok := strings.Cut(strings.TrimPrefix(line, "written "), " ")
			revision, err := strconv.ParseUint(text, 10, 64)
			if !ok || err != nil {
				t.Fatalf("it said %q", line)
			}
			outcomes = append(outcomes, outcome{record: record(web1, attempt), revision: trust.Revision(revision)})
		}
		s, stop := start(t, dir)
		s.agree(t, outcomes)
		if n := s.inBatches(t); n == 0 {
			t.Error("no batch was written")
		}
		stop()
	}
}

// writeUntilKilled runs in the copy.
func writeUntilKilled(t *testing.T, dir string) {
	s, _ := start(t, dir)
	st := s.gathering(t, true)
	var mu sync.Mutex
	for round := 0; ; round++ {
		for _, o := range atOnce(s.ctx, st, func(int) (*provisioner.Record, trust.Revision) {
			id := wire.NewID()
			return record(wire.Identity(strings.ToLower(strings.NewReplacer("_", "x", "-",
				"y").Replace(id))+".example.net"), id), 0
		}) {
			mu.Lock()
			if o.err == nil {
				fmt.Fprintf(os.Stdout, "written %s %d\n", o.record.Attempt, o.revision)
			}
			mu.Unlock()
		}
	}
}

// saying collects the output of a process, and signals when there is enough.
type saying struct {
	text   strings.Builder
	lines  int
	enough chan struct{}
	once   sync.Once
}

func (s *saying) Write(b []byte) (int, error) {
	s.text.Write(b)
	if strings.Count(s.text.String(), "\n") >= s.lines {
		s.once.Do(func() { close(s.enough) })
	}
	return len(b), nil
}
