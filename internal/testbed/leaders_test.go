package testbed_test

import (
	"context"
	"encoding/json"
	"fmt"
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
