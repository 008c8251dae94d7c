package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestKilledProvisionerForgetsNothing kills the provisioner with SIGKILL, twice,
// while nodes enroll, and reads its store afterwards from outside: whatever a
// node was told is on record, each has one certificate, and all of them end
// provisioned.
func TestKilledProvisionerForgetsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const nodes = 60
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "broker.example.net", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port, "--trust-first-use")
	muster(t, dir, "jwt", "provisioning.jwt", "prov/signer-key.pem", "--token", "toomanysecrets", "--urls", "127.0.0.1:"+port)
	token, err := os.ReadFile(filepath.Join(dir, "provisioning.jwt"))
	if err != nil {
		t.Fatal(err)
	}
	run := func() *process {
		p := start(t, dir, "provisioner", "run", "--config", "prov/provisioner.yaml")
		p.waitFor("provisioner is serving")
		return p
	}
	p := run()
	w := &wave{url: "nats://127.0.0.1:" + port, token: strings.TrimSpace(string(token)), told: map[string]string{}, enrolled: make(chan struct{}, 100*nodes)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() { w.node(ctx, t, fmt.Sprintf("web%d.example.net", i)) })
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for range 2 {
		for range nodes / 6 {
			select {
			case <-w.enrolled:
			case <-ended:
			}
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.done
		p = run()
	}
	<-ended
	p.stop()
	w.compare(t, filepath.Join(dir, "prov/provisioner.yaml"))
}

// wave is many nodes that enroll at one provisioner.
type wave struct {
	url, token string
	enrolled   chan struct{} // one for each certificate received

	mu   sync.Mutex
	told map[string]string // guarded by mu: the last serial that a node was told, by identity
}

// node enrolls and confirms, over and over, until it is provisioned.
func (w *wave) node(ctx context.Context, t *testing.T, identity string) {
	n, err := simnode.New(identity, w.token)
	if err != nil {
		t.Error(err)
		return
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !w.try(ctx, t, n) {
		select {
		case <-ctx.Done():
			t.Errorf("%s is not provisioned: %v", identity, ctx.Err())
			return
		case <-again.C:
		}
	}
}

// try reports whether the node is provisioned.
func (w *wave) try(ctx context.Context, t *testing.T, n *simnode.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nc, err := simnode.Dial(w.url, n.Token)
	if err != nil {
		return false
	}
	defer nc.Close()
	r, err := simnode.Enroll(ctx, nc, n.Request())
	if err != nil || r.Enrolled == nil {
		return false
	}
	w.mu.Lock()
	if before, ok := w.told[n.Identity]; ok && before != r.Enrolled.Serial {
		t.Errorf("%s was told certificate %s and then %s", n.Identity, before, r.Enrolled.Serial)
	}
	w.told[n.Identity] = r.Enrolled.Serial
	w.mu.Unlock()
	w.enrolled <- struct{}{}
	a, err := n.Confirm(r.Enrolled)
	if err != nil {
		t.Error(err)
		return true
	}
	r, err = simnode.Apply(ctx, nc, a)
	return err == nil && r.Applied != nil
}

// compare opens the store of a stopped provisioner and holds it to what the
// nodes were told.
func (w *wave) compare(t *testing.T, config string) {
	d, err := daemon.Load(config, daemon.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	last := map[wire.Identity]*provisioner.Record{}
	err = d.Run(ctx, func() {
		defer stop()
		err := d.Store().Revisions(ctx, "", func(r *provisioner.Record, revision trust.Revision) error {
			from := provisioner.StateNone
			if before := last[r.Identity]; before != nil {
				from = before.State
			}
			if !provisioner.CanMove(from, r.State) {
				t.Errorf("%s revision %d: %s follows %s", r.Identity, revision, r.State, from)
			}
			last[r.Identity] = r
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	for identity, serial := range w.told {
		r := last[wire.Identity(identity)]
		if r == nil || r.State != provisioner.StateProvisioned || r.Current.Serial != serial || r.Next != nil || len(r.Lineage) != 1 {
			t.Errorf("%s was told certificate %s, on record is %+v", identity, serial, r)
		}
	}
	if len(last) != len(w.told) {
		t.Errorf("%d records of %d nodes", len(last), len(w.told))
	}
}
