package testbed_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// restore restores a fleet and starts it again.
func restore(t *testing.T, f *testbed.Fleet, file string) {
	t.Helper()
	loseStore(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Minute)
	f.Start()
	f.Restored()
}

// keyHash returns the fingerprint of a node's key.
func keyHash(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// leafOf returns a node's certificate in DER.
func leafOf(t *testing.T, e *wire.Enrolled) []byte {
	t.Helper()
	block, _ := pem.Decode([]byte(e.Certificate))
	if block == nil {
		t.Fatal("no certificate")
	}
	return block.Bytes
}

// alarmNames reports whether the alarm of the recovery names a node.
func alarmNames(f *testbed.Fleet, name string) bool {
	return strings.Contains(f.WaitAlarm(events.AlarmRecovery), name)
}

// approve approves the key of a node once it is pending.
func approve(t *testing.T, f *testbed.Fleet, n *simnode.Node) {
	t.Helper()
	key := keyHash(t, n)
	f.Eventually("approved", func() bool {
		_, err := f.Daemon().Orders().Keys.Approve(f.Context(), operate.Named(wire.Identity(n.Identity), key), 0,
			testbed.Operator())
		return err == nil
	})
}

// TestARestoredStoreAdmitsNothingOld restores a backup: older grants and approvals are void or frozen, revocations
// are in force again, and names without a record wait for an approval of their key, until an operator ends the
// recovery.
func TestARestoredStoreAdmitsNothingOld(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	op, cause := f.Daemon().Operator(), testbed.Operator()
	limited := f.Token(testbed.Limited(3))
	var users []*simnode.Node
	for i := range 4 {
		n, err := simnode.New(fmt.Sprintf("limited%d.example.net", i), limited)
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, n)
	}
	nodes := f.Nodes(3)
	revoked, retired, granted, leaked := nodes[0], nodes[1], nodes[2], f.Token(nil)
	for _, n := range append(nodes, users[0]) {
		f.Apply(n, f.Enroll(n))
	}
	if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), wire.Identity(granted.Identity), operate.GrantOrder{},
		cause); err != nil {
		t.Fatal(err)
	}
	file := backUp(t, f)
	f.Apply(users[1], f.Enroll(users[1]))
	if err := errors.Join(
		testbed.Orders(op).Nodes.Revoke(f.Context(), wire.Identity(revoked.Identity), cause),
		testbed.Orders(op).Nodes.Retire(f.Context(), wire.Identity(retired.Identity), cause),
		testbed.Orders(op).Tokens.Revoke(f.Context(), f.TokenID(leaked), cause),
	); err != nil {
		t.Fatal(err)
	}

	restore(t, f, file)
	op = f.Daemon().Operator()
	f.WaitAlarm(events.AlarmRecovery)
	f.Eventually("revoked on record", func() bool {
		return f.Record(revoked.Identity).State == provisioner.StateRevoked
	})
	f.Eventually("retired on record", func() bool {
		return f.Record(retired.Identity).State == provisioner.StateRetired
	})
	if op.Revocations().Token(f.TokenID(leaked)) == nil {
		t.Error("a revoked token is good again")
	}
	refused := func(n *simnode.Node, want wire.Code) {
		t.Helper()
		if code := f.Refused(n); code != want {
			t.Errorf("%s: %q, want %q", n.Identity, code, want)
		}
	}
	refused(revoked, wire.CodeIdentityRevoked)
	refused(f.Node(granted.Identity), wire.CodeIdentityTaken) // the grant is void
	refused(f.Node("stranger.example.net"), wire.CodeApprovalPending)
	f.Apply(users[0], f.Enroll(users[0])) // on record
	refused(users[1], wire.CodeApprovalPending)
	approve(t, f, users[1])
	refused(users[1], wire.CodeTokenFrozen)
	if err := testbed.Orders(op).Tokens.Unfreeze(f.Context(), f.TokenID(limited), 1, cause); err != nil {
		t.Fatal(err)
	}
	f.Apply(users[1], f.Enroll(users[1]))
	f.Check()

	f.Stop()
	f.Start()
	op = f.Daemon().Operator()
	refused(f.Node("another.example.net"), wire.CodeApprovalPending)
	if err := testbed.Orders(op).Recovery.End(f.Context(), cause); err != nil {
		t.Fatal(err)
	}
	f.Enroll(f.Node("another.example.net"))
	refused(users[2], wire.CodeTokenUsedUp) // the operator said that one was left
	refused(f.Node(granted.Identity), wire.CodeIdentityTaken)
	other, err := simnode.New("other.example.net", f.Token(testbed.Limited(1)))
	if err != nil {
		t.Fatal(err)
	}
	f.Enroll(other)
	f.Check()
}

// Agents renew after a backup. Once it is restored, all of them return to the fleet by themselves, without grants.
func TestAFleetReturnsByItsCertificates(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const fleet = 20
	token := f.Token(nil)
	var agents []*testbed.Agent
	for i := range fleet {
		agents = append(agents, f.Agent(fmt.Sprintf("web%d.example.net", i), token))
	}
	provisioned := func() bool {
		for _, a := range agents {
			if r := f.Record(a.Identity); r == nil || r.State != provisioner.StateProvisioned || r.Next != nil {
				return false
			}
		}
		return true
	}
	f.Eventually("all are provisioned", provisioned)
	before := make(map[string]string)
	for _, a := range agents {
		before[a.Identity] = f.Record(a.Identity).Current.Serial
	}
	file := backUp(t, f)
	f.Clock.Advance(25 * 24 * time.Hour)
	f.Eventually("all have renewed", func() bool {
		for _, a := range agents {
			if f.Record(a.Identity).Current.Serial == before[a.Identity] {
				return false
			}
		}
		return provisioned()
	})
	restore(t, f, file)
	f.Eventually("all have come back", func() bool {
		for _, a := range agents {
			if r := f.Record(a.Identity); r.Recovered == nil || r.Current == nil ||
				r.Current.Serial == before[a.Identity] || r.Next != nil {
				return false
			}
		}
		return provisioned()
	})
	if err := f.Daemon().Orders().Recovery.End(f.Context(), testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Check()
}

// comeBack renews a certificate that is not on record. It repeats with the same key if its connection is dropped,
// since it belongs to no node on record.
func comeBack(t *testing.T, f *testbed.Fleet, n *simnode.Node, e *wire.Enrolled) (*wire.Reply, error) {
	t.Helper()
	next := f.Successor(n)
	for {
		r, err := comeBackOnce(t, f, n, e, next)
		if !errors.Is(err, nats.ErrConnectionClosed) || f.Context().Err() != nil {
			return r, err
		}
	}
}

func comeBackOnce(t *testing.T, f *testbed.Fleet, n *simnode.Node, e *wire.Enrolled, next *simnode.Node) (*wire.Reply,
	error) {
	t.Helper()
	nc, err := n.DialFleet(f.URL(), e)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	request, err := n.Renewal(next)
	if err != nil {
		return nil, err
	}
	request.Certificate = leafOf(t, e)
	return simnode.Renew(f.Context(), nc, request)
}

// A name changes its key twice after the backup: the second and the third key both have certificates newer than the
// record.
func TestTwoReturningKeysAreBothRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	file := backUp(t, f)
	f.Clock.Advance(time.Minute)
	second, secondGot := f.Renew(n, e)
	f.AppliedOverFleet(second, secondGot)
	f.Clock.Advance(time.Minute)
	third, thirdGot := f.Renew(second, secondGot)
	f.AppliedOverFleet(third, thirdGot)
	restore(t, f, file)
	if r, err := comeBack(t, f, second, secondGot); err != nil || r.Refusal != nil {
		t.Fatalf("the first that comes back: %+v, %v", r, err)
	}
	if _, err := comeBack(t, f, third, thirdGot); err == nil {
		t.Error("another key has come back for the name")
	}
	f.Eventually("the name is revoked", func() bool { return f.Record(n.Identity).State == provisioner.StateRevoked })
	f.Eventually("an alarm names it", func() bool { return alarmNames(f, n.Identity) })
	f.Check()
}

// TestAnAcceptedLossRestoresNoUses puts an older copy of the store in place: no provisioner serves until an operator
// accepts the loss. Revocations come back from the journal, and no use of a token becomes available again.
func TestAnAcceptedLossRestoresNoUses(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	dir, copied := filepath.Join(f.Dir, "data/broker"), filepath.Join(t.TempDir(), "broker")
	stolen, late := f.Node("stolen.example.net"), f.Node("late.example.net")
	stolenGot := f.Enroll(stolen)
	f.Apply(stolen, stolenGot)
	token := f.Token(testbed.Limited(1))
	f.Stop()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	f.Start()
	late.Token = token
	f.Apply(late, f.Enroll(late))
	f.Revoke(stolen.Identity)
	f.Stop()
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second start is refused too
		testbed.Damaged(f)
	}
	if r := testbed.AcceptLoss(f); r.Epoch != 1 || r.Lost == "" {
		t.Errorf("recovery %+v, want the first, and what is lost", r)
	}
	f.Clock.Advance(time.Minute)
	f.Start()
	f.Restored()
	f.Eventually("revoked on record", func() bool {
		return f.Record(stolen.Identity).State == provisioner.StateRevoked
	})
	f.Eventually("on the CRL", func() bool { return f.OnCRL(stolenGot.Serial) })
	thief := f.Node("thief.example.net")
	thief.Token = token
	if code := f.Refused(thief); code != wire.CodeApprovalPending {
		t.Errorf("a name that is not on record: %q", code)
	}
	approve(t, f, thief)
	if code := f.Refused(thief); code != wire.CodeTokenFrozen {
		t.Errorf("a use that the store has lost: %q", code)
	}
	f.Check()
	f.Stop()
	f.Start() // no loss
	f.Check()
}
