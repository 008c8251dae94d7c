package testbed_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
	"muster/provisioner/services"
	"muster/provisioner/store"
)

// TestDamageToTheStoreStopsTheStart damages each stream's files beside the index of an orderly stop. Each start reports
// the loss and ends before it serves. After an accepted loss the store is in recovery.
func TestDamageToTheStoreStopsTheStart(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(30))
	var nodes []*simnode.Node
	for i := range 30 {
		n, err := simnode.New(fmt.Sprintf("web%02d.example.net", i), token)
		if err != nil {
			t.Fatal(err)
		}
		f.Apply(n, f.Enroll(n))
		nodes = append(nodes, n)
		if _, err := f.Daemon().Store().PutCertificate(f.Context(), &services.Certificate{Schema: services.Schema,
			Node: wire.Identity(n.Identity), Name: "https", OwnedSince: f.Record(n.Identity).OwnedSince, Attempt: "a"},
			0); err != nil {
			t.Fatal(err)
		}
		if i < 10 {
			f.Revoke(n.Identity)
			if _, err := f.Daemon().Orders().AllowList.Add(f.Context(),
				operate.AllowOrder{Pattern: fmt.Sprintf("db%d*", i)}, testbed.Operator()); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Stop()
	data := filepath.Join(f.Dir, "data")
	saved := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	for _, stream := range store.DurableStreams() {
		for _, damage := range damages {
			if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(saved)),
				os.Chmod(filepath.Join(data, "revocations.journal"), 0o600)); err != nil {
				t.Fatal(err)
			}
			blocks, err := filepath.Glob(filepath.Join(data, "broker/jetstream/MUSTER/streams", stream, "msgs/*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatalf("%s, %s: blocks %v, %v", stream, damage.what, blocks, err)
			}
			damage.do(t, blocks[0])
			t.Logf("%s, %s: %v", stream, damage.what, testbed.Damaged(f))
		}
	}
	// The rest of the last damage goes on, after an operator accepts the loss.
	if r := testbed.AcceptLoss(f); r.Lost == "" {
		t.Errorf("nothing is lost: %+v", r)
	}
	f.Clock.Advance(time.Minute)
	f.Start()
	f.Restored()
	if code := f.Refused(f.Node(nodes[20].Identity)); code != wire.CodeApprovalPending &&
		code != wire.CodeIdentityTaken {
		t.Errorf("the name of a lost record: %q", code)
	}
	f.Eventually("revoked all the same", func() bool {
		r := f.Record(nodes[0].Identity)
		return r == nil || r.State == provisioner.StateRevoked
	})
	if code := f.Refused(nodes[0]); code != wire.CodeIdentityRevoked {
		t.Errorf("a revoked node: %q", code)
	}
	f.Check()
}

// damages to a block of messages.
var damages = []struct {
	what string
	do   func(t *testing.T, block string)
}{
	{"a byte flipped in the middle", func(t *testing.T, block string) { flip(t, block, 2) }},
	{"a byte flipped in the last message", func(t *testing.T, block string) { flip(t, block, 1) }},
	{"block removed", func(t *testing.T, block string) {
		if err := os.Remove(block); err != nil {
			t.Fatal(err)
		}
	}},
	{"block cut", func(t *testing.T, block string) {
		info, err := os.Stat(block)
		if err == nil {
			err = os.Truncate(block, info.Size()/2)
		}
		if err != nil {
			t.Fatal(err)
		}
	}},
}

// flip flips a byte in the last message of a block, or in one half way to it.
func flip(t *testing.T, file string, part int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/part-20] ^= 0x20
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
