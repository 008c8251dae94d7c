package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// filler returns what writes a grant of so many bytes, another one each time.
func filler(f *testbed.Fleet) func(bytes int) error {
	n := 0
	return func(bytes int) error {
		n++
		return f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{
			ID: wire.NewID(), Identity: wire.Identity(fmt.Sprintf("filler%d.example.net", n)), Why: strings.Repeat("x", bytes), ExpiresAt: f.Clock.Now(),
		}, provisioner.AnyRevision)
	}
}

// TestAStoreAtItsLimit has a disk with room and a JetStream without: first no
// new identities are let in, then only revocations are written, and at the limit
// itself the broker is left alone until a restart gives it more.
func TestAStoreAtItsLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	var limit atomic.Int64
	limit.Store(12 << 20)
	f := testbed.New(t, testbed.Options{StoreSize: func(string) (int64, int64, error) { return limit.Load(), 16 << 20, nil }})
	const restarting = `"msg":"broker restarting`
	revokeToken := func(what string) {
		t.Helper()
		if err := f.Daemon().Operator().RevokeToken(f.Context(), tokenID(t, f, f.Token(nil)), testbed.Operator()); err != nil {
			t.Errorf("%s: revoke a token: %v", what, err)
		}
	}
	renewing, known := f.Node("renewing.example.net"), f.Node("known.example.net")
	current, offer := f.Enroll(renewing), f.Enroll(known)
	f.Apply(renewing, current)
	nodes := f.Nodes(10)
	offers := map[string]*wire.Enrolled{}
	for _, n := range nodes {
		offers[n.Identity] = f.Enroll(n)
	}

	fill := filler(f)
	// Reports may take 5.4 MiB of the 12; half a MiB is left, less than a twentieth
	// and more than what is held back.
	for range 196 {
		if err := fill(32 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if cause := f.WaitAlarm(wire.CodeStorageLow); !strings.Contains(cause, "the store has") {
		t.Errorf("alarm says %q, want the store's own limit", cause)
	}
	stranger := f.Node("stranger.example.net")
	if code := f.Refused(stranger); code != wire.CodeStorageLow {
		t.Errorf("a new identity = %s, want %s", code, wire.CodeStorageLow)
	}
	if r := f.Apply(known, offer); r.Refusal != nil {
		t.Errorf("applied = %s, want it accepted", r.Refusal.Code)
	}
	f.Renew(renewing, current)
	revokeToken("low")

	// What is still free goes as well, but for what is held back.
	next := 0
	f.Eventually("nothing but revocations is written", func() bool {
		for bytes := 8 << 10; bytes > 0; bytes /= 8 {
			for fill(bytes) == nil {
			}
		}
		if next == len(nodes) {
			t.Fatal("confirmations are still accepted")
		}
		n := nodes[next]
		next++
		r := f.Apply(n, offers[n.Identity])
		return r.Refusal != nil && r.Refusal.Code == wire.CodeUnavailable && strings.HasPrefix(f.Cause(n.Identity), string(wire.CodeStorageLow))
	})
	if err := fill(32 << 10); !errors.Is(err, provisioner.ErrStoreFull) {
		t.Errorf("a grant = %v, want %v", err, provisioner.ErrStoreFull)
	}
	revokeToken("full")
	f.Revoke(known.Identity)
	f.Eventually("the certificate is on the list", func() bool { return f.OnCRL(offer.Serial) })

	// Past what is held back there is nothing: JetStream refuses everything.
	conn, err := f.Daemon().Connect("filler")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		_, err = js.Publish(f.Context(), fmt.Sprintf("muster.entry.grant.raw%d", i), make([]byte, 256<<10))
	}
	if err := f.Daemon().Store().Probe(f.Context()); !errors.Is(err, provisioner.ErrStoreFull) {
		t.Errorf("Probe = %v, want %v", err, provisioner.ErrStoreFull)
	}
	f.Eventually("the keeper has met it", func() bool {
		return strings.Contains(f.WaitAlarm(wire.CodeStorageLow), provisioner.ErrStoreFull.Error())
	})
	if n := strings.Count(f.Log(), restarting); n != 0 {
		t.Errorf("%d restarts, want none: they gain nothing", n)
	}
	if n := len(alarmEvents(f, wire.CodeStoreUnavailable)); n != 0 {
		t.Errorf("%d events of %s, want none: the store answers", n, wire.CodeStoreUnavailable)
	}

	limit.Store(64 << 20)
	f.WaitNoAlarm(wire.CodeStorageLow)
	if n := strings.Count(f.Log(), restarting); n != 1 {
		t.Errorf("%d restarts for a larger limit, want one", n)
	}
	f.Eventually("new identities are let in", func() bool { return f.Ask(stranger).Enrolled != nil })
	revokeToken("grown")
}
