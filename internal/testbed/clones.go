package testbed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Clone starts another agent from a copy of the agent's disk, like a machine made from a provisioned machine's image.
func (a *Agent) Clone() *Agent {
	f := a.f
	f.t.Helper()
	token, err := os.ReadFile(a.Token)
	must(f.t, err)
	b := f.newAgent(a.Identity, string(token))
	// The agent removes an old set soon after a switch, so a copy may miss files.
	f.Eventually("a copy of the disk", func() bool {
		err := os.CopyFS(b.Dir, os.DirFS(a.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(b.Dir) // if this fails, the next copy fails too
			return false
		}
		must(f.t, err)
		return true
	})
	for _, name := range []string{"private.pem", "server.conf"} {
		must(f.t, os.Chmod(filepath.Join(b.Dir, name), 0o600))
	}
	b.Start()
	return b
}
