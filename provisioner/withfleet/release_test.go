package provisioner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/operate"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// claimed leaves a claim without a record: the process dies between the two.
func claimed(t *testing.T, f *testbed.Fleet, n *simnode.Node) {
	t.Helper()
	step, before := 2, len(entries(t, f, n.Token))
	f.Eventually("a claim of "+n.Identity, func() bool {
		calls, err := dying(t, f, step, false, n)
		switch {
		case err == nil:
			t.Fatalf("%s enrolled before its process could die", n.Identity)
		case calls > step: // it died, or was refused too early on a slow machine
			step++
		}
		return len(entries(t, f, n.Token)) > before
	})
}

// release has an operator release a claim.
func release(t *testing.T, f *testbed.Fleet, token, holder string) ([]trust.TokenUse, error) {
	t.Helper()
	life, over := context.WithCancel(t.Context())
	defer over()
	return testbed.Orders(f.ProvisionerFor(life, nil)).Tokens.Release(f.Context(), f.TokenID(token), holder,
		trust.Cause{By: "anna", Why: "the disk died"})
}

// TestADeadNodesUseIsReleased by its key or by its name; another node gets it.
func TestADeadNodesUseIsReleased(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	for by, holder := range map[string]func(*simnode.Node) string{
		"key":      func(n *simnode.Node) string { return keyHash(t, n) },
		"identity": func(n *simnode.Node) string { return n.Identity },
	} {
		token := f.Token(testbed.Limited(1))
		dead := node(t, by+".example.net", token)
		claimed(t, f, dead)
		claimed(t, f, dead) // two attempts, one use
		if got := f.Refused(node(t, "web1.example.net", token)); got != wire.CodeTokenUsedUp {
			t.Errorf("by %s: before the release another node is refused as %s", by, got)
		}
		if _, err := release(t, f, token, holder(dead)); !errors.Is(err, operate.ErrClaimYoung) {
			t.Errorf("by %s: release at once = %v, want %v", by, err, operate.ErrClaimYoung)
		}
		f.Clock.Advance(operate.ReleaseAge + time.Second)
		released, err := release(t, f, token, holder(dead))
		if err != nil || len(released) != 1 || released[0].Key != keyHash(t, dead) ||
			string(released[0].Identity) != dead.Identity || released[0].State != trust.UseReleased {
			t.Errorf("by %s: release = %+v, %v", by, released, err)
		}
		if _, err := release(t, f, token, holder(dead)); !errors.Is(err, operate.ErrNoClaim) {
			t.Errorf("by %s: release again = %v, want %v", by, err, operate.ErrNoClaim)
		}
		r := report(t, f, token)
		if len(r.UsedBy) != 1 || r.UsedBy[0].ReleasedBy != "anna" || r.UsedBy[0].Why != "the disk died" ||
			r.UsedBy[0].ReleasedAt.IsZero() || r.Used != 0 || r.Left == nil || *r.Left != 1 {
			t.Errorf("by %s: report = %+v", by, r)
		}
		f.Enroll(node(t, "db-"+by+".example.net", token))
		if got := f.Refused(dead); got != wire.CodeTokenUsedUp {
			t.Errorf("by %s: the dead one, back again, is refused as %s", by, got)
		}
	}
	if !slices.ContainsFunc(f.Events(), func(e events.Event) bool {
		return e.Type == events.TokenReleased && e.By == "anna" && e.Why == "the disk died" &&
			e.Node == "key.example.net"
	}) {
		t.Error("no event says which operator released what")
	}
	f.Check()
}

// TestClaimsThatAreNotReleased has a row per reason.
func TestClaimsThatAreNotReleased(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	old := operate.ReleaseAge + time.Minute
	tests := map[string]struct {
		do   func(t *testing.T, token, identity string) (holder string)
		want error
	}{
		"no node": {func(t *testing.T, token, identity string) string {
			f.Enroll(node(t, identity, token))
			return "db1.example.net"
		}, operate.ErrNoClaim},
		"nothing at all": {func(*testing.T, string, string) string { return "" }, operate.ErrNoClaim},
		"a node that is enrolled": {func(t *testing.T, token, identity string) string {
			f.Enroll(node(t, identity, token))
			return identity
		}, operate.ErrClaimEnrolled},
		"a node that is provisioned": {func(t *testing.T, token, identity string) string {
			n := node(t, identity, token)
			f.Apply(n, f.Enroll(n))
			return keyHash(t, n)
		}, operate.ErrClaimEnrolled},
		"whose key has been replaced since": {func(t *testing.T, token, identity string) string {
			n := node(t, identity, token)
			f.Apply(n, f.Enroll(n))
			fresh := f.Node(identity)
			request := fresh.Request()
			vouch(t, n, request)
			if r, err := simnode.Enroll(f.Context(), f.Dial(fresh.Token), request); err != nil || r.Enrolled == nil {
				t.Fatalf("reply = %+v, %v", r, err)
			}
			return keyHash(t, n)
		}, operate.ErrClaimEnrolled},
		"a node that was retired": {func(t *testing.T, token, identity string) string {
			n := node(t, identity, token)
			f.Apply(n, f.Enroll(n))
			f.PutRecord(identity, func(r *provisioner.Record) {
				r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil
			})
			return identity
		}, operate.ErrClaimEnrolled},
		"a retired node whose name another has": {func(t *testing.T, token, identity string) string {
			n := node(t, identity, token)
			f.Apply(n, f.Enroll(n))
			f.PutRecord(identity, func(r *provisioner.Record) {
				r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil
			})
			other := f.Node(identity)
			f.Apply(other, f.Enroll(other))
			return identity
		}, operate.ErrClaimEnrolled},
		"whose name has too long a history since": {func(t *testing.T, token, identity string) string {
			claimed(t, f, node(t, identity, token))
			flap(f, identity)
			return identity
		}, operate.ErrClaimEnrolled},
		"one of two keys of a name, if the other is young": {func(t *testing.T, token, identity string) string {
			claimed(t, f, node(t, identity, token))
			f.Clock.Advance(old)
			claimed(t, f, node(t, identity, token))
			f.Clock.Advance(-old)
			return identity
		}, operate.ErrClaimYoung},
		"a node that is back": {func(t *testing.T, token, identity string) string {
			n := node(t, identity, token)
			claimed(t, f, n)
			f.Clock.Advance(old)
			claimed(t, f, n)
			f.Clock.Advance(-old)
			return identity
		}, operate.ErrClaimYoung},
	}
	for name, tt := range tests {
		identity := strings.Map(func(r rune) rune {
			if r < 'a' || r > 'z' {
				return '-'
			}
			return r
		}, name) + ".example.net"
		token := f.Token(testbed.Limited(3))
		holder := tt.do(t, token, identity)
		before := len(entries(t, f, token))
		f.Clock.Advance(old)
		if released, err := release(t, f, token, holder); !errors.Is(err, tt.want) || released != nil {
			t.Errorf("%s: release = %v, %v, want %v", name, released, err, tt.want)
		}
		if got := len(entries(t, f, token)); got != before {
			t.Errorf("%s: %d entries, want %d: something was written", name, got, before)
		}
	}
	for _, tid := range []string{"", ">", "*", "a.b", strings.Repeat("0", 31), strings.Repeat("0", 33),
		strings.Repeat("A", 32)} {
		p := provisioners(t, f, 1)[0]
		if _, err := testbed.Orders(p).Tokens.Release(f.Context(), jwt.TokenID(tid),
			"web1.example.net", trust.Cause{}); !errors.Is(err, trust.ErrTokenID) {
			t.Errorf("release on token %q = %v", tid, err)
		}
		if _, err := testbed.Orders(p).Tokens.Get(f.Context(), jwt.TokenID(tid), 100); !errors.Is(err,
			trust.ErrTokenID) {
			t.Errorf("token %q = %v", tid, err)
		}
	}
	if _, err := testbed.Orders(provisioners(t, f, 1)[0]).Tokens.Release(f.Context(), f.TokenID(f.Token(nil)),
		"a", trust.Cause{Why: strings.Repeat("x", 2000)}); err == nil {
		t.Error("an operator's words of 2000 bytes are accepted")
	}
	f.Check()
}

// flap makes the history of an identity that another key has longer than what is kept.
func flap(f *testbed.Fleet, identity string) {
	f.Enroll(f.Node(identity))
	for range 70 {
		f.PutRecord(identity, func(r *provisioner.Record) { r.UpdatedAt = f.Clock.Now().UTC() })
	}
}

// TestAReleaseLosesToANodeThatIsBack: the node asks between the operator's decision and its write.
func TestAReleaseLosesToANodeThatIsBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	claimed(t, f, n)
	f.Clock.Advance(operate.ReleaseAge + time.Minute)
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
		faults := &testbed.Faults{Store: s}
		faults.ClaimWrites.Before(func(context.Context, *trust.ClaimEntry) { f.Enroll(n) })
		return faults
	})
	if released, err := testbed.Orders(p).Tokens.Release(f.Context(), f.TokenID(token), n.Identity,
		trust.Cause{By: "anna"}); !errors.Is(err, operate.ErrClaimYoung) {
		t.Errorf("release = %v, %v, want %v", released, err, operate.ErrClaimYoung)
	}
	if got := report(t, f, token).Used; got != 1 {
		t.Errorf("%d uses are held, want the node's", got)
	}
	f.Check()
}
