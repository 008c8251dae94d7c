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
// terminal 1 serves. It runs in namespaces of its own, so port 4222 is free, every process ends with it, and /etc is a
// copy. The files one and two have the blocks; two is empty if the document needs one terminal.
const terminals = `
set -e
ip link set lo up
cp -a /etc etc
mount --bind etc /etc
mkdir clone
cd clone
ln -s ../bin bin
if [ ! -s ../two ]; then exec bash -e ../one; fi
bash -e ../one > ../one.log 2>&1 &
one=$!
until grep -q 'provisioner is serving' ../one.log; do
  kill -0 $one || { cat ../one.log; exit 1; }
  sleep 0.05
done
timeout 60 bash -e ../two || { cat ../one.log ./*.log; exit 1; }
`

// TestShellBlocksRun runs the blocks marked sh of the documents for newcomers.
func TestShellBlocksRun(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	testproc.Needs(t, "bash", "unshare", "ip", "mount", "openssl", "useradd")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{"README.md", "docs/install.md"} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join("../..", doc))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			one, two := shellBlocks(string(b))
			if one == "" {
				t.Fatal("no block is marked sh")
			}
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("one", one)
			write("two", two)
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
		})
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
