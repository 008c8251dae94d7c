package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"muster/server"
)

// TestADirectoryThatIsRemoved has somebody remove all of an agent's files beside it, to
// have the machine begin anew: while it is in the fleet, and while it waits to be let in.
// Whoever makes the directory at once does not make it the agent's: another one could begin
// in it.
func TestADirectoryThatIsRemoved(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"gone": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			remove := func() {
				t.Helper()
				// The lock goes first, and the rest at once: the agent may put something into the
				// directory in between, or begin in the one that is made anew.
				dir := filepath.Dir(cfg.SSLDir)
				if err := os.Remove(filepath.Join(cfg.SSLDir, ".lock")); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(dir, dir+".old"); err != nil {
					t.Fatal(err)
				}
				if again {
					if err := os.Mkdir(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.RemoveAll(dir + ".old"); err != nil {
					t.Fatal(err)
				}
			}
			ends := func(a *agent) {
				t.Helper()
				if err := a.end(); !errors.Is(err, server.ErrRestart) {
					t.Fatalf("Run = %v, want %v", err, server.ErrRestart)
				}
			}

			a := f.run(cfg)
			a.await(server.EventConnected, 1)
			remove()
			ends(a)

			f.set(func() { f.enroll = refuse("approval_pending", 0) })
			a = f.run(cfg)
			a.await(server.EventRefused, 1)
			remove()
			ends(a)
			f.awaitLog("files were removed", "path="+cfg.SSLDir)

			f.set(func() { f.enroll = nil })
			f.run(cfg).await(server.EventConnected, 1)
		})
	}
}
