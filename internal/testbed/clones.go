package testbed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"muster/internal/simnode"
	"muster/jwt"
)

// CopyAgent starts another agent from a copy of an agent's disk, as a machine
// does that was made from the image of a provisioned one.
func (f *Fleet) CopyAgent(a *Agent) *Agent {
	f.t.Helper()
	base := f.t.TempDir()
	b := &Agent{Identity: a.Identity, Dir: filepath.Join(base, "node"), Token: filepath.Join(base, "provisioning.jwt"), f: f}
	token, err := os.ReadFile(a.Token)
	if err == nil {
		err = os.WriteFile(b.Token, token, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	// A set loses files soon after it is in force: what is to be confirmed, and that
	// it is untried.
	f.Eventually("a copy of the disk", func() bool {
		err := os.CopyFS(b.Dir, os.DirFS(a.Dir))
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(b.Dir) // the next copy says so
			return false
		}
		if err != nil {
			f.t.Fatal(err)
		}
		return true
	})
	for _, name := range []string{"private.pem", "server.conf"} {
		if err := os.Chmod(filepath.Join(b.Dir, name), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	b.Start()
	f.t.Cleanup(func() {
		if b.stop != nil {
			b.Stop()
		}
	})
	return b
}

// NodeOf returns a simulated node with an agent's key and a new token.
func (f *Fleet) NodeOf(a *Agent) *simnode.Node {
	f.t.Helper()
	n := f.Node(a.Identity)
	b, err := os.ReadFile(filepath.Join(a.Dir, "private.pem"))
	if err != nil {
		f.t.Fatal(err)
	}
	if n.Key, err = jwt.ParsePrivateKey(b, nil); err != nil {
		f.t.Fatal(err)
	}
	if n.CSR, err = simnode.CSR(n.Key, a.Identity); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Said counts the lines that agents of this identity logged with a message.
func (f *Fleet) Said(identity, msg string) int {
	n := 0
	for line := range strings.Lines(f.Log()) {
		if strings.Contains(line, `"msg":"`+msg+`"`) && strings.Contains(line, `"agent":"`+identity+`"`) {
			n++
		}
	}
	return n
}
