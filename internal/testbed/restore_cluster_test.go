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
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
	"muster/provisioner/store"
)

// loseCluster loses the disks of all servers, and starts them with new ones.
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

// journalAt is the journal of a provisioner that was added to a fleet.
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

// A trial is a provisioner that may not come so far as to serve.
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

// try starts a provisioner of a fleet's configuration, by another name unless
// that is empty.
func try(t *testing.T, f *testbed.Fleet, name string, alone bool) *trial {
	t.Helper()
	p := &trial{ready: make(chan struct{}), done: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(p, nil))
	d, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), daemon.Options{Log: log, Now: f.Clock.Now, Alone: alone}, func(c *daemon.Config) {
		if name != "" {
			c.Name, c.DataDir, c.Revocations.Journal = name, filepath.Join(f.Dir, "data-"+name), ""
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

// end stops it, and returns what Run did.
func (p *trial) end() error {
	p.stop()
	return <-p.done
}

// refuses starts the fleet's provisioner and waits until it says why it does not
// open the store.
func refuses(t *testing.T, f *testbed.Fleet, why error) {
	t.Helper()
	p := try(t, f, "", false)
	f.Eventually("the provisioner says: "+why.Error(), func() bool { return p.said(why.Error()) || p.serves() })
	if p.serves() {
		t.Errorf("it serves, want %v", why)
	}
	_ = p.end()
}

// TestAClusterIsRestored backs three servers up while nodes enroll over two
// provisioners, has them and a third do something after it, loses all disks, and
// restores, with more and more of the journals.
func TestAClusterIsRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	second := f.AddProvisioner("second.fleet.test")
	_, nodes := limitedNodes(t, f, 4, 5)
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	bad := f.Node("bad.example.net")
	f.Apply(bad, f.Enroll(bad))
	w := wave(t, f, f.Token(nil), 20, nil)
	w.reached(3)
	file := backUp(t, f)
	w.Wait()
	info, err := daemon.CheckBackupFile(f.Context(), file, nil)
	if err != nil || len(info.Provisioners) != 2 || len(info.Marked) != 2 {
		t.Fatalf("backup by %v, marked by %v: %v", info.Provisioners, info.Marked, err)
	}

	enrollAt(t, f, second, nodes[1])
	third := f.AddProvisioner("third.fleet.test")
	enrollAt(t, f, third, nodes[2])
	if err := third.Daemon.Operator().RevokeNode(f.Context(), wire.Identity(bad.Identity), testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	r := restoring(f, file)
	if _, err := r.Run(f.Context()); !errors.Is(err, journal.ErrInUse) || !strings.HasSuffix(err.Error(), ": stop the provisioner that has it") {
		t.Errorf("restored under its own provisioner: %v, want ErrInUse", err)
	}
	f.Stop()
	r.AcceptLostSince = time.Unix(1, 0)
	if _, err := r.Run(f.Context()); !errors.Is(err, daemon.ErrServed) {
		t.Errorf("restored under other provisioners: %v, want ErrServed", err)
	}
	second.Stop()
	third.Stop()
	if _, err := r.Run(f.Context()); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("restored over a store: %v, want ErrNotEmpty", err)
	}

	loseCluster(t, f)
	refuses(t, f, store.ErrLost)
	r = restoring(f, file)
	for _, name := range []string{"second.fleet.test", "third.fleet.test"} {
		if _, err := r.Run(f.Context()); err == nil || !strings.Contains(err.Error(), "provisioner "+name) || !strings.Contains(err.Error(), "--accept-lost-since") {
			t.Fatalf("restored without the journal of %s: %v", name, err)
		}
		r.Journals = append(r.Journals, journalAt(f, name))
	}
	out, err := r.Run(f.Context())
	if err != nil || out.Lost != "" || out.Claims < 2 || out.Revocations != 1 {
		t.Fatalf("restored %+v, %v", out, err)
	}
	f.Start()
	f.Restored()
	f.AddProvisioner("second.fleet.test")
	f.AddProvisioner("third.fleet.test")
	for stream, n := range f.Replicas() {
		if n != 3 {
			t.Errorf("%s has %d replicas, want 3", stream, n)
		}
	}
	f.Eventually("revoked on record", func() bool { return f.Record(bad.Identity).State == provisioner.StateRevoked })
	if code := f.Refused(bad); code != wire.CodeIdentityRevoked {
		t.Errorf("revoked at a provisioner that joined after the backup: %q", code)
	}
	for _, n := range nodes[:4] {
		f.Apply(n, f.Enroll(n))
	}
	if code := f.Refused(nodes[4]); code != wire.CodeTokenUsedUp {
		t.Errorf("a fifth node with a token of four uses: %q", code)
	}
	f.Check()
}
