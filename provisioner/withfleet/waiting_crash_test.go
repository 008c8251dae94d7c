package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// eachDeath calls scene for a death before and after every call to the store,
// until there is one call fewer than the step: that one has died nowhere. Its other processes
// live until life is done.
func eachDeath(t *testing.T, least int, scene func(life context.Context, step int, after bool) (calls int)) {
	t.Helper()
	for step := 0; ; step++ {
		calls := 0
		for _, after := range []bool{false, true} {
			life, over := context.WithCancel(t.Context())
			calls = scene(life, step, after)
			over()
		}
		if calls <= step {
			if step < least {
				t.Errorf("%d steps, want %d or more: the test dies at none of them", step, least)
			}
			return
		}
	}
}

// listed waits until exactly this machine waits under its name.
func listed(t *testing.T, f *testbed.Fleet, n *simnode.Node) {
	t.Helper()
	f.Refused(n)
	f.Eventually("it is listed", func() bool {
		list, err := f.Daemon().Operator().Waiting(f.Context(), wire.Identity(n.Identity))
		return err == nil && len(list) == 1 && list[0].KeyHash == keyHash(t, n)
	})
}

// asks has a process decide about a machine, which asks again as nodes do where the store did
// not answer in time: on a machine with much else to do that says nothing about either.
func asks(f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node) (e *wire.Enrolled, code wire.Code) {
	f.Eventually("an answer to "+n.Identity, func() bool {
		var err error
		e, err = p.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "192.0.2.1"})
		code = provisioner.CodeOf(err)
		return !slices.Contains([]wire.Code{wire.CodeRevocationsUnknown, wire.CodeStoreUnavailable, wire.CodeBusy}, code)
	})
	return e, code
}

// insist gives an order, and gives it again where the store did not answer in time.
func insist(f *testbed.Fleet, p *provisioner.Provisioner, order func(context.Context, *provisioner.Provisioner) error) (err error) {
	f.Eventually("an answer to an order", func() bool {
		err = order(f.Context(), p)
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, provisioner.ErrRevocationsUnknown)
	})
	return err
}

// TestADeathAtEveryStepOfAnApproval lets the operator's process die before and
// after every call to its store while it approves, and the node's while it uses
// that. Both ask again: the machine is in, with one approval that is spent, and
// nobody else is.
func TestADeathAtEveryStepOfAnApproval(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	approves := func(n *simnode.Node) func(context.Context, *provisioner.Provisioner) error {
		return func(ctx context.Context, p *provisioner.Provisioner) error {
			_, err := p.ApproveNode(ctx, wire.Identity(n.Identity), "", 0, operator)
			return err
		}
	}
	in := func(life context.Context, what string, n *simnode.Node) {
		t.Helper()
		next, id := f.ProvisionerFor(life, nil), wire.Identity(n.Identity)
		first, code := asks(f, next, n)
		again, _ := asks(f, next, n)
		if first == nil || again == nil || first.Serial != again.Serial || f.Revisions(n.Identity) != 1 {
			t.Fatalf("%s: refused as %q, or not the same certificate again", what, code)
		}
		if _, code := asks(f, next, f.Node(n.Identity)); code != wire.CodeIdentityTaken {
			t.Errorf("%s: another key with that name: %q", what, code)
		}
		// What was approved twice is spent once: the same key waits again.
		if err := next.RetireNode(f.Context(), id, operator); err != nil {
			t.Fatal(err)
		}
		if _, code := asks(f, next, n); code != wire.CodeApprovalPending {
			t.Errorf("%s: the same key when the name is free again: %q, want %s", what, code, wire.CodeApprovalPending)
		}
	}
	name := func(what string, step int, after bool) string {
		return fmt.Sprintf("%s%d-%v.example.net", what, step, after)
	}
	eachDeath(t, 2, func(life context.Context, step int, after bool) int {
		n := f.Node(name("said", step, after))
		listed(t, f, n)
		calls, err := dyingIn(t, f, step, after, approves(n))
		if (err != nil) != (step < calls) {
			t.Errorf("death at call %d of %d: %v", step, calls, err)
		}
		if err := insist(f, f.ProvisionerFor(life, nil), approves(n)); err != nil {
			t.Fatalf("approved again after a death at call %d: %v", step, err)
		}
		in(life, n.Identity, n)
		return calls
	})
	eachDeath(t, 3, func(life context.Context, step int, after bool) int {
		n := f.Node(name("used", step, after))
		listed(t, f, n)
		if err := insist(f, f.ProvisionerFor(life, nil), approves(n)); err != nil {
			t.Fatal(err)
		}
		calls, _ := dying(t, f, step, after, n)
		in(life, n.Identity, n)
		return calls
	})
	f.Check()
}

// TestADeathAtEveryStepOfARejection does the same for rejections, and for what
// forgets them: whatever has become of the first word, the second one holds.
func TestADeathAtEveryStepOfARejection(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	eachDeath(t, 3, func(life context.Context, step int, after bool) int {
		n := f.Node(fmt.Sprintf("web%d-%v.example.net", step, after))
		id, key := wire.Identity(n.Identity), keyHash(t, n)
		listed(t, f, n)
		rejects := func(ctx context.Context, p *provisioner.Provisioner) error {
			a, err := p.RejectNode(ctx, id, "", operator)
			if err == nil && a.KeyHash != key {
				t.Errorf("rejected %s, want %s", a.KeyHash, key)
			}
			return err
		}
		calls, _ := dyingIn(t, f, step, after, rejects)
		if err := insist(f, f.ProvisionerFor(life, nil), rejects); err != nil {
			t.Fatalf("rejected again after a death at call %d, after it %v: %v", step, after, err)
		}
		if _, code := asks(f, f.ProvisionerFor(life, nil), n); code != wire.CodeRejected {
			t.Errorf("after a death at call %d, rejected again: %q", step, code)
		}
		forgets := func(ctx context.Context, p *provisioner.Provisioner) error {
			_, err := p.ForgetNode(ctx, id, key, operator)
			return err
		}
		_, _ = dyingIn(t, f, step, after, forgets)
		if err := insist(f, f.ProvisionerFor(life, nil), forgets); err != nil && !errors.Is(err, provisioner.ErrNotWaiting) {
			t.Fatalf("forgotten again after a death at call %d: %v", step, err)
		}
		if _, code := asks(f, f.ProvisionerFor(life, nil), n); code != wire.CodeApprovalPending {
			t.Errorf("after a death at call %d, forgotten again: %q", step, code)
		}
		return calls
	})
	f.Check()
}

// TestADeathAtEveryStepOfAnAllowance dies while an entry for two machines is
// added, used, added again and removed: two get in, a third does not, and no use
// is counted twice.
func TestADeathAtEveryStepOfAnAllowance(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	scene := 0
	both := func(life context.Context, step int, after bool, died func(added, used bool) bool) (calls int) {
		scene++
		rack := fmt.Sprintf("rack%d", scene)
		name := func(n int) string { return fmt.Sprintf("web%d.%s.example.net", n, rack) }
		allows := func(uses int) func(context.Context, *provisioner.Provisioner) error {
			return func(ctx context.Context, p *provisioner.Provisioner) error {
				_, err := p.AllowNames(ctx, "web*."+rack+".example.net", time.Hour, uses, false, operator)
				return err
			}
		}
		if died(true, false) {
			calls, _ = dyingIn(t, f, step, after, allows(2))
		}
		next := f.ProvisionerFor(life, nil)
		first, second, third := f.Node(name(1)), f.Node(name(2)), f.Node(name(3))
		// The entry of a lost answer may be there, and in use already.
		early, _ := asks(f, next, first)
		if err := insist(f, next, allows(2)); err != nil {
			t.Fatalf("%s: added again after a death at call %d: %v", rack, step, err)
		}
		if died(false, true) {
			calls, _ = dying(t, f, step, after, second)
			next = f.ProvisionerFor(life, nil)
		}
		for _, n := range []*simnode.Node{first, second, first} {
			e, code := asks(f, next, n)
			if e == nil {
				t.Fatalf("%s: %s after a death at call %d, after it %v: %q", rack, n.Identity, step, after, code)
			}
			if n == first && early != nil && e.Serial != early.Serial {
				t.Errorf("%s: two certificates for one machine", rack)
			}
		}
		// Adding it once more lets nobody in beyond the two.
		if err := insist(f, next, allows(2)); err != nil {
			t.Fatal(err)
		}
		if _, code := asks(f, next, third); code != wire.CodeApprovalPending {
			t.Errorf("%s: a third machine after a death at call %d, after it %v: %q", rack, step, after, code)
		}
		list, err := f.Daemon().Operator().Allowances(f.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			if a.Pattern.Match(wire.Identity(name(1))) && len(a.UsedBy) != 2 {
				t.Errorf("%s: %d uses are counted, want 2: %+v", rack, len(a.UsedBy), a.UsedBy)
			}
		}
		if err := insist(f, next, allows(1)); !errors.Is(err, provisioner.ErrState) {
			t.Errorf("%s: fewer uses than have been made: %v", rack, err)
		}
		if err := insist(f, next, allows(3)); err != nil {
			t.Fatal(err)
		}
		removes := func(ctx context.Context, p *provisioner.Provisioner) error {
			return p.DisallowNames(ctx, wire.Pattern("web*."+rack+".example.net"), operator)
		}
		_, _ = dyingIn(t, f, step, after, removes)
		next = f.ProvisionerFor(life, nil)
		if err := insist(f, next, removes); err != nil && !errors.Is(err, provisioner.ErrNotAllowed) {
			t.Fatalf("%s: removed again after a death at call %d: %v", rack, step, err)
		}
		if _, code := asks(f, next, third); code != wire.CodeApprovalPending {
			t.Errorf("%s: a machine after its entry was removed: %q", rack, code)
		}
		return calls
	}
	eachDeath(t, 2, func(life context.Context, step int, after bool) int {
		return both(life, step, after, func(added, _ bool) bool { return added })
	})
	eachDeath(t, 4, func(life context.Context, step int, after bool) int { // record, entry, use, record
		return both(life, step, after, func(_, used bool) bool { return used })
	})
	f.Check()
}

// TestADeathAtEveryStepOfAnIssuedToken dies while a one-time token is issued and
// while it is used: the token is listed once, and good for one machine.
func TestADeathAtEveryStepOfAnIssuedToken(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	scene := 0
	both := func(life context.Context, step int, after, issuing bool) (calls int) {
		scene++
		name := fmt.Sprintf("web%d.example.net", scene)
		text := f.Token(func(c *jwt.Claims) {
			testbed.Limited(1, wire.Pattern(name))(c)
			c.ExpiresAt = f.Clock.Now().Add(time.Hour)
		})
		issues := func(ctx context.Context, p *provisioner.Provisioner) error {
			_, err := p.IssueToken(ctx, text, operator)
			return err
		}
		next := f.ProvisionerFor(life, nil)
		if issuing {
			calls, _ = dyingIn(t, f, step, after, issues)
		}
		if err := insist(f, next, issues); err != nil {
			t.Fatalf("%s: issued again after a death at call %d: %v", name, step, err)
		}
		n := node(t, name, text)
		if !issuing {
			calls, _ = dying(t, f, step, after, n)
		}
		if e, code := asks(f, next, n); e == nil {
			t.Fatalf("%s: after a death at call %d, after it %v: %q", name, step, after, code)
		}
		if err := next.RetireNode(f.Context(), wire.Identity(name), operator); err != nil {
			t.Fatal(err)
		}
		if _, code := asks(f, next, node(t, name, text)); code != wire.CodeTokenUsedUp {
			t.Errorf("%s: another machine with the token: %q", name, code)
		}
		tokens, err := next.Tokens(f.Context())
		if err != nil {
			t.Fatal(err)
		}
		times := 0
		for _, token := range tokens {
			if token.ID == f.TokenID(text) {
				times++
				if token.Used != 1 || token.Left == nil || *token.Left != 0 {
					t.Errorf("%s: used %d times, %d left", name, token.Used, token.Remaining())
				}
			}
		}
		if times != 1 {
			t.Errorf("%s: listed %d times", name, times)
		}
		return calls
	}
	eachDeath(t, 2, func(life context.Context, step int, after bool) int {
		return both(life, step, after, true)
	})
	eachDeath(t, 3, func(life context.Context, step int, after bool) int {
		return both(life, step, after, false)
	})
	f.Check()
}

// TestADeathAtEveryStepBesideAutosign dies around the run of a command that
// approves: it is asked again or not, and the machine is in once.
func TestADeathAtEveryStepBesideAutosign(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	script := filepath.Join(t.TempDir(), "autosign")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat >/dev/null\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) { c.Waiting.Autosign.Command = script }})
	eachDeath(t, 3, func(life context.Context, step int, after bool) int { // record, answer, record
		n := f.Node(fmt.Sprintf("web%d-%v.example.net", step, after))
		calls, _ := dying(t, f, step, after, n)
		next := f.ProvisionerFor(life, nil)
		first, code := asks(f, next, n)
		if first == nil {
			t.Fatalf("after a death at call %d, after it %v: %q", step, after, code)
		}
		if again, _ := asks(f, next, n); again == nil || again.Serial != first.Serial || f.Revisions(n.Identity) != 1 {
			t.Errorf("after a death at call %d: another certificate with the next try", step)
		}
		if a := f.Record(n.Identity).Approval; a == nil || a.By != provisioner.AutosignBy || a.KeyHash != keyHash(t, n) {
			t.Errorf("after a death at call %d, on record: %+v", step, a)
		}
		return calls
	})
	f.Check()
}
