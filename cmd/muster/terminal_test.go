package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testproc"
)

// terminals runs the blocks of a document in bash, as a reader pastes them: those of terminal 2 once the provisioner of
// terminal 1 serves. It runs in namespaces of its own, so port 4222 is free and every process ends with it. The files one
// and two have the blocks.
const terminals = `
set -e
ip link set lo up
mkdir clone
cd clone
ln -s ../bin bin
bash -e ../one > ../one.log 2>&1 &
one=$!
until grep -q 'provisioner is serving' ../one.log; do
  kill -0 $one || { cat ../one.log; exit 1; }
  sleep 0.05
done
timeout 60 bash -e ../two || { cat ../one.log ./*.log; exit 1; }
`

// TestShellBlocksRun runs the blocks marked sh of README.md.
func TestShellBlocksRun(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	testproc.Needs(t, "bash", "unshare", "ip", "mount", "openssl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	one, two := shellBlocks(string(b))
	if one == "" || two == "" {
		t.Fatal("no block is marked sh, or none is of terminal 2")
	}
	write(t, filepath.Join(dir, "one"), one)
	write(t, filepath.Join(dir, "two"), two)
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin", program)); err != nil { // see TestMain
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
		"bash", "-c", terminals)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("PATH=%s/bin:%s", dir, os.Getenv("PATH")))
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// shellBlocks returns the blocks marked sh: those before the first that begins with "# terminal 2", and the rest.
func shellBlocks(doc string) (one, two string) {
	var all strings.Builder
	inside := false
	for line := range strings.Lines(doc) {
		switch text := strings.TrimSpace(line); {
		case inside && text == "```":
			inside = false
		case inside:
			all.WriteString(line)
		default:
			inside = text == "```sh"
		}
	}
	one, two, _ = strings.Cut(all.String(), "# terminal 2\n")
	return one, two
}
