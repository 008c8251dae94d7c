package testbed_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// loseCluster replaces the disks of all servers by empty ones.
func loseCluster(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	for _, s := range f.Servers() {
		s.Kill()
	}
	for _, s := range f.Servers() {
		if err := os.RemoveAll(filepath.Join(s.Dir, "store")); err != nil {
			t.Fatal(err)
		}
		s.Start()
	}
}

// journalAt returns the journal of an added provisioner.
func journalAt(f *testbed.Fleet, name string) string {
	return filepath.Join(f.Dir, "data-"+name, "revocations.journal")
}

// enrollAt has this provisioner, and no other, enroll a node.
func enrollAt(t *testing.T, f *testbed.Fleet, p *testbed.Provisioner, n *simnode.Node) {
	t.Helper()
	op, from := p.Daemon.Operator(), provisioner.Source{Address: "127.0.0.1"}
	e, err := op.Enroll(f.Context(), n.Request(), from)
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.Confirm(e)
	if err == nil {
		err = op.Applied(f.Context(), a, from)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A trial is a provisioner that may fail to start.
type trial struct {
	d     *daemon.Daemon
	ready chan struct{}
	done  chan error
	stop  context.CancelFunc

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

func (p *trial) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *trial) said(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.log.String(), what)
}

func (p *trial) serves() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// try starts a provisioner with a fleet's configuration, under another name unless that is empty.
func try(t *testing.T, f *testbed.Fleet, name string) *trial {
	t.Helper()
	p := &trial{ready: make(chan struct{}), done: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(p, nil))
	d, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), daemon.Options{Log: log, Now: f.Clock.Now},
		func(c *daemon.Config) {
			if name != "" {
				c.Name, c.DataDir, c.Revocations.Journal = name, filepath.Join(f.Dir, "data-"+name), ""
				if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	p.d, p.stop = d, stop
	go func() { p.done <- d.Run(ctx, func() { close(p.ready) }) }()
	return p
}

// end stops it and returns Run's error.
func (p *trial) end() error {
	p.stop()
	return <-p.done
}

// refuses starts the fleet's provisioner and waits for its reason not to open the store.
func refuses(t *testing.T, f *testbed.Fleet, why error) {
	t.Helper()
	p := try(t, f, "")
	f.Eventually("the provisioner says: "+why.Error(), func() bool { return p.said(why.Error()) || p.serves() })
	if p.serves() {
		t.Errorf("it serves, want %v", why)
	}
	_ = p.end()
}

// TestAClusterIsRestored backs up three servers while nodes enroll over two provisioners. All provisioners revoke
// afterwards; all disks are lost. The restore with one journal has every revocation.
func TestAClusterIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	second := f.AddProvisioner("second.fleet.test")
	bad := f.Node("bad.example.net")
	f.Apply(bad, f.Enroll(bad))
	kept := f.Node("kept.example.net")
	f.Apply(kept, f.Enroll(kept))
	w := wave(t, f, f.Token(nil), 20, nil)
	w.reached(3)
	file := backUp(t, f)
	w.Wait()
	late := f.Node("late.example.net")
	enrollAt(t, f, second, late)
	third := f.AddProvisioner("third.fleet.test")
	if err := third.Daemon.Orders().Nodes.Revoke(f.Context(), wire.Identity(bad.Identity),
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the journal of another provisioner has it", func() bool {
		b, err := os.ReadFile(journalAt(f, "second.fleet.test"))
		return err == nil && strings.Contains(string(b), bad.Identity)
	})
	r := restoring(f, file)
	if _, err := r.Run(f.Context()); !errors.Is(err, backup.ErrJournalInUse) {
		t.Errorf("restored under its own provisioner: %v, want ErrJournalInUse", err)
	}
	f.Stop()
	second.Stop()
	third.Stop()
	if _, err := r.Run(f.Context()); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("restored over a store: %v, want ErrNotEmpty", err)
	}

	loseCluster(t, f)
	refuses(t, f, store.ErrDamaged)
	other, err := os.ReadFile(journalAt(f, "second.fleet.test"))
	if err == nil {
		err = os.WriteFile(journalOf(f), other, 0o600) // as an operator whose own journal is lost
	}
	if err != nil {
		t.Fatal(err)
	}
	r = restoring(f, file)
	out, err := r.Run(f.Context())
	if err != nil || out.Revocations != 1 || out.Recovery.Epoch != 1 {
		t.Fatalf("restored %+v, %v", out, err)
	}
	f.Start()
	f.Restored()
	f.AddProvisioner("second.fleet.test") // its watermark is ahead of the store
	for stream, n := range f.Replicas() {
		if n != 3 {
			t.Errorf("%s has %d replicas, want 3", stream, n)
		}
	}
	f.Eventually("revoked on record", func() bool { return f.Record(bad.Identity).State == provisioner.StateRevoked })
	if code := f.Refused(bad); code != wire.CodeIdentityRevoked {
		t.Errorf("revoked after the backup: %q", code)
	}
	f.Apply(kept, f.Enroll(kept))
	if code := f.Refused(late); code != wire.CodeApprovalPending {
		t.Errorf("a name that is not on record: %q, want that it waits for an approval", code)
	}
	f.Check()
}
