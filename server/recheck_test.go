package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server"
)

// putBack has a node enroll, be reconfigured, and its directory be put back to what it was
// before that. The fleet knows of the new configuration only.
func (f *fleet) putBack(t *testing.T, cfg server.Config) {
	t.Helper()
	var enrolled *wire.Enrolled
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			e := f.enrolled(r, nil)
			f.set(func() { enrolled = e })
			again := *e
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: &again}
		}
		f.renew = func(r *wire.RenewRequest) *wire.Reply { // for the key that it has, the certificate that it has
			f.mu.Lock()
			again := *enrolled
			f.mu.Unlock()
			again.Configuration = map[string]string{"generation": "new", "brokers": f.url()}
			again.Digest = wire.Digest(again.Certificate, again.Files)
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: &again}
		}
	})
	f.member(t, cfg)
	before := t.TempDir()
	if err := os.CopyFS(filepath.Join(before, "ssl"), os.DirFS(cfg.SSLDir)); err != nil {
		t.Fatal(err)
	}
	writeOrder(t, cfg, wire.NewID(), wire.VerbReconfigure)
	a := f.run(cfg)
	current := a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	confirmations := f.confirmations()
	last := confirmations[len(confirmations)-1]
	if last.Serial != current.Serial || last.Digest == confirmations[0].Digest {
		t.Fatalf("confirmed %+v, then %+v", confirmations[0], last)
	}
	f.set(func() {
		f.applied = func(a *wire.Applied) *wire.Reply {
			if a.Serial != last.Serial || a.Digest != last.Digest {
				return refuse(wire.CodeNotIssued, 0)(&wire.EnrollRequest{ID: a.ID})
			}
			return accept(a)
		}
	})
	if err := os.RemoveAll(cfg.SSLDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(before, "ssl"), cfg.SSLDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(cfg.SSLDir, "private.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestADiskThatWasPutBackIsNoticed puts a machine back to before it was reconfigured: it
// ends with the configuration that is on record, by itself and for the same key.
func TestADiskThatWasPutBackIsNoticed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.AliveInterval = time.Millisecond
	f.putBack(t, cfg)
	key := readFile(t, filepath.Join(cfg.SSLDir, "private.pem"))
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(readFile(t, cfg.ConfFile), "generation = new") {
		t.Errorf("the old configuration is in force; log:\n%s", f.log.String())
	}
	if readFile(t, filepath.Join(cfg.SSLDir, "private.pem")) != key || len(f.requests()) != 1 {
		t.Error("another key, or the node enrolled again")
	}
	if n := f.countLog("configuration in force is not the one on record"); n != 1 {
		t.Errorf("said %d times:\n%s", n, f.log.String())
	}
}
