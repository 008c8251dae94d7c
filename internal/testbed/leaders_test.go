package testbed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
)

// stepDown has the leader of one stream after the other step down, again and again, and
// takes away the consumers that provisioners read with, until the test calls the function
// that it returns; downs is how many have.
func stepDown(t *testing.T, f *testbed.Fleet, streams []string) (downs *atomic.Int64, end func()) {
	t.Helper()
	conn, err := f.Daemon().Connect("careless")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(dst any, format string, args ...any) {
		if m, err := conn.Request(fmt.Sprintf(format, args...), nil, 2*time.Second); err == nil { // else nobody leads just now
			_ = json.Unmarshal(m.Data, dst)
		}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	downs = &atomic.Int64{}
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			stream := streams[i%len(streams)]
			var list struct{ Consumers []string }
			ask(&list, "$JS.API.CONSUMER.NAMES.%s", stream)
			for _, name := range list.Consumers {
				ask(&struct{}{}, "$JS.API.CONSUMER.DELETE.%s.%s", stream, name)
			}
			var stepped struct{ Success bool }
			if ask(&stepped, "$JS.API.STREAM.LEADER.STEPDOWN.%s", stream); stepped.Success {
				downs.Add(1)
			}
		}
	}()
	return downs, func() {
		t.Helper()
		close(ended)
		if <-done; downs.Load() < 5 {
			t.Errorf("%d leaders stepped down, too few to mean anything", downs.Load())
		}
		conn.Close()
	}
}

// revokeAt has a provisioner revoke a node, over and over until the store has it.
func revokeAt(f *testbed.Fleet, p *provisioner.Provisioner, id wire.Identity) {
	f.Eventually("revoked", func() bool {
		ctx, cancel := context.WithTimeout(f.Context(), 5*time.Second)
		defer cancel()
		return p.RevokeNode(ctx, id, testbed.Operator()) == nil
	})
}

// TestLeadersStepDown has leaders step down in the middle of a wave, while nodes are revoked
// at one provisioner and at another.
func TestLeadersStepDown(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const nodes, uses = 60, 40
	f := testbed.New(t, testbed.Options{Servers: 3})
	second := f.AddProvisioner("second.fleet.test")
	downs, end := stepDown(t, f, append(store.KeptStreams(), "MUSTER_NODES", "MUSTER_EVENTS"))
	w := waveAs(t, f, f.Token(testbed.Limited(uses)), nodes, func(r *wire.Refusal) bool {
		return r.Code == wire.CodeTokenUsedUp.ToldAs() || r.Code == wire.CodeIdentityRevoked.ToldAs()
	}, func(i int) bool { return downs.Load() >= int64(i/10) }) // on a quick machine all would be done before the second
	w.reached(4)
	revoked := w.provisioned()[:4]
	for i, id := range revoked {
		revokeAt(f, []*provisioner.Provisioner{f.Daemon().Operator(), second.Daemon.Operator()}[i%2], wire.Identity(id))
	}
	w.Wait()
	end()
	if got := len(w.provisioned()); got != uses {
		t.Errorf("%d nodes are provisioned with a token of %d uses: %v", got, uses, w.refused())
	}
	for _, id := range revoked {
		f.Eventually(id+" is revoked on record", func() bool { return f.Record(id).State == provisioner.StateRevoked })
	}
	f.Eventually("all alarms are over", func() bool { return len(f.Daemon().Alarms())+len(second.Daemon.Alarms()) == 0 })
	f.Check()
}

// TestOrdersWhileLeadersStepDown gives orders to one provisioner and to another, whose clock
// is three minutes behind, while the stream that keeps them changes its leader all the time: what
// was ordered last is so at both.
func TestOrdersWhileLeadersStepDown(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	second := f.AddProvisionerBehind("second.fleet.test", -3*time.Minute)
	_, end := stepDown(t, f, []string{"MUSTER_ENTRIES", "MUSTER_REVOCATIONS", "MUSTER_NODES"})
	ops := []*provisioner.Provisioner{f.Daemon().Operator(), second.Daemon.Operator()}
	o := &operators{t, f}
	// order gives an order until it is acknowledged, or turns out to have been carried out
	// all the same, and then wants it to hold at both.
	order := func(what string, holds func(p *provisioner.Provisioner) bool, do func(ctx context.Context) error) {
		t.Helper()
		f.Eventually(what, func() bool {
			ctx, cancel := context.WithTimeout(f.Context(), 5*time.Second)
			defer cancel()
			return do(ctx) == nil || holds(ops[0]) && holds(ops[1])
		})
		for i, p := range ops {
			f.Eventually(fmt.Sprintf("%s, at %d", what, i), func() bool { return holds(p) })
		}
	}
	signer := func(name string, removed bool) func(*provisioner.Provisioner) bool {
		return func(p *provisioner.Provisioner) bool {
			list, err := p.ListSigners(f.Context())
			return err == nil && slices.ContainsFunc(list, func(s provisioner.SignerInfo) bool { return s.Name == name && s.Removed == removed })
		}
	}
	covers := func(pattern string, want bool) func(*provisioner.Provisioner) bool {
		return func(p *provisioner.Provisioner) bool {
			list, err := p.Allowances(f.Context())
			return err == nil && want == slices.ContainsFunc(list, func(a *provisioner.Allowance) bool { return string(a.Pattern) == pattern })
		}
	}
	state := func(want provisioner.State) func(*provisioner.Provisioner) bool {
		return func(*provisioner.Provisioner) bool { return f.Record("web1.example.net").State == want }
	}
	n := f.Node("web1.example.net")
	f.Eventually("enrolled", func() bool { return letIn(f, n) })
	for i := range 4 {
		a, b := ops[i%2], ops[(i+1)%2]
		name, pattern, key := fmt.Sprintf("s%d", i), fmt.Sprintf("web%d*.example.net", i%3), o.key()
		order("signer added", signer(name, false), func(ctx context.Context) error {
			_, err := a.AddSigner(ctx, provisioner.NewSigner{Name: name, Public: key}, testbed.Operator())
			return err
		})
		order("allowed", covers(pattern, true), func(ctx context.Context) error {
			_, err := b.AllowNames(ctx, pattern, 0, 0, false, testbed.Operator())
			return err
		})
		order("paused", func(p *provisioner.Provisioner) bool { return p.Paused() != nil }, func(ctx context.Context) error {
			_, err := a.Pause(ctx, "", false, testbed.Operator())
			return err
		})
		if letIn(f, f.Node(fmt.Sprintf("late%d.example.net", i))) {
			t.Error("let in while paused")
		}
		order("resumed", func(p *provisioner.Provisioner) bool { return p.Paused() == nil }, func(ctx context.Context) error {
			return b.Resume(ctx, "", testbed.Operator())
		})
		order("disallowed", covers(pattern, false), func(ctx context.Context) error {
			return a.DisallowNames(ctx, wire.Pattern(pattern), testbed.Operator())
		})
		order("signer removed", signer(name, true), func(ctx context.Context) error {
			list, err := b.ListSigners(ctx)
			if i := slices.IndexFunc(list, func(s provisioner.SignerInfo) bool { return s.Name == name }); err == nil && i >= 0 {
				_, err = b.RemoveSigner(ctx, list[i].ID, testbed.Operator())
			}
			return err
		})
	}
	// Takeovers, and revocations and retirements, in turns.
	for i := range 6 {
		a, b := ops[i%2], ops[(i+1)%2]
		const id = "web1.example.net"
		if i%2 == 0 {
			stands := func(*provisioner.Provisioner) bool {
				g, _, err := f.Daemon().Store().Grant(f.Context(), id)
				return err == nil && g.Stands(f.Record(id), f.Clock.Now())
			}
			order("granted", stands, func(ctx context.Context) error {
				_, err := a.GrantNode(ctx, id, provisioner.GrantOrder{}, testbed.Operator())
				return err
			})
			next := f.Node(id)
			f.Eventually("taken over", func() bool { return letIn(f, next) })
			continue
		}
		revokeAt(f, a, id)
		if letIn(f, f.Node(id)) {
			t.Error("let in while revoked")
		}
		order("retired", state(provisioner.StateRetired), func(ctx context.Context) error { return b.RetireNode(ctx, id, testbed.Operator()) })
		next := f.Node(id)
		f.Eventually("the next is let in", func() bool { return letIn(f, next) })
	}
	end()
	f.Check()
}
