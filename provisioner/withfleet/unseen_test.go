package provisioner_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestATakenNameIsToldOfStorageAsAFreeOne asks for names while the store is low on room: who
// asks for one that is another's, or revoked, hears what it would of a free one, or a
// token would list the fleet of whoever's disk is full. Who has a name is served.
func TestATakenNameIsToldOfStorageAsAFreeOne(t *testing.T) {
	t.Parallel()
	var limit atomic.Int64
	limit.Store(12 << 20)
	f := testbed.New(t, testbed.Options{StoreSize: func(string) (int64, int64, error) { return limit.Load(), 16 << 20, nil }})
	owner, revoked := f.Node("web1.example.net"), f.Node("web2.example.net")
	for _, n := range []*simnode.Node{owner, revoked} {
		f.Apply(n, f.Enroll(n))
	}
	f.Revoke(revoked.Identity)
	told := func(name string) wire.Refusal {
		t.Helper()
		n := f.Node(name)
		r := f.Ask(n)
		if r.Refusal == nil {
			t.Fatalf("%s is let in", name)
		}
		return *r.Refusal
	}
	taken := []struct {
		name string
		code wire.Code // the true one
	}{{owner.Identity, wire.CodeIdentityTaken}, {revoked.Identity, wire.CodeIdentityRevoked}}
	for _, n := range taken { // the open policy would let a free one in, and the asker would see it
		if got := told(n.name).Code; got != n.code.ToldAs() {
			t.Errorf("%s with room: %s, want %s", n.name, got, n.code.ToldAs())
		}
	}

	fill := filler(f)
	for range 196 { // as in TestAStoreAtItsLimit
		if err := fill(32 << 10); err != nil {
			t.Fatal(err)
		}
	}
	f.WaitAlarm(wire.CodeStorageLow)
	want := told("free.example.net")
	if want.Code != wire.CodeStorageLow.ToldAs() {
		t.Fatalf("a free name is refused as %s", want.Code)
	}
	for _, n := range taken {
		got := told(n.name)
		if got.Code != want.Code || got.Message != want.Message {
			t.Errorf("%s: told %s, %q; a free name is told %s, %q", n.name, got.Code, got.Message, want.Code, want.Message)
		}
		if cause := f.Cause(n.name); !strings.HasPrefix(cause, string(n.code)+":") {
			t.Errorf("%s: operators see %q, want %s", n.name, cause, n.code)
		}
	}
	if r := f.Ask(owner); r.Enrolled == nil {
		t.Errorf("who has the name is refused: %+v", r.Refusal)
	}
	f.Check()
}
