package testbed_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/operate"
)

// limitedNodes returns nodes that share a token of so many uses.
func limitedNodes(t *testing.T, f *testbed.Fleet, uses, n int) (token string, nodes []*simnode.Node) {
	t.Helper()
	token = f.Token(testbed.Limited(uses))
	for i := range n {
		node, err := simnode.New(fmt.Sprintf("limited%d.example.net", i), token)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	return token, nodes
}

// keyHash returns the hash of a certificate's key.
func keyHash(t *testing.T, e *wire.Enrolled) string {
	t.Helper()
	block, _ := pem.Decode([]byte(e.Certificate))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := ca.KeyHash(leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func journalOf(f *testbed.Fleet) string { return filepath.Join(f.Dir, "data", "revocations.journal") }

// restore restores a fleet and starts it again.
func restore(t *testing.T, f *testbed.Fleet, file string, accept time.Time) {
	t.Helper()
	loseStore(t, f)
	r := restoring(f, file)
	r.AcceptLostSince = accept
	if _, err := r.Run(f.Context()); err != nil {
		t.Fatal(err)
	}
	f.Start()
	f.Restored()
}

// TestUsesSpentAfterTheBackupStaySpent restores a backup from before most of a
// token's uses were spent: who has spent one keeps it, and nobody else gets it.
func TestUsesSpentAfterTheBackupStaySpent(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token, nodes := limitedNodes(t, f, 3, 4)
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	file := backUp(t, f)
	for _, n := range nodes[1:3] {
		f.Apply(n, f.Enroll(n))
	}
	restore(t, f, file, time.Time{})
	if code := f.Refused(nodes[3]); code != wire.CodeTokenUsedUp {
		t.Errorf("a fourth node: %q", code)
	}
	for _, n := range nodes[:3] {
		f.Apply(n, f.Enroll(n))
	}
	report, err := f.Daemon().Operator().Token(f.Context(), f.TokenID(token))
	if err != nil || report.Used != 3 || report.Left == nil || *report.Left != 0 {
		t.Errorf("token: %+v, %v", report, err)
	}
	f.Check()
	// And once more, from the same backup and from one of now.
	restore(t, f, file, time.Time{})
	for _, n := range nodes[:3] {
		f.Apply(n, f.Enroll(n))
	}
	if code := f.Refused(nodes[3]); code != wire.CodeTokenUsedUp {
		t.Errorf("a fourth node: %q", code)
	}
	restore(t, f, backUp(t, f), time.Time{})
	if code := f.Refused(nodes[3]); code != wire.CodeTokenUsedUp {
		t.Errorf("a fourth node: %q", code)
	}
	f.Check()
}

// TestABackupUnderLoad backs up while 64 nodes at a time enroll with tokens of
// which there are too few uses, loses the store in the middle of it, and lets
// all of them go on after the restore.
func TestABackupUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const tokens, uses, askers = 4, 40, 60
	var nodes []*simnode.Node
	for i := range tokens {
		token := f.Token(testbed.Limited(uses))
		for k := range askers {
			n, err := simnode.New(fmt.Sprintf("t%dn%d.example.net", i, k), token)
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
	}
	nodes = append(nodes, f.Nodes(64)...)
	p := f.Daemon().Operator()
	work := make(chan *simnode.Node)
	var wg sync.WaitGroup
	held := make(chan string, 4*len(nodes)) // who had a certificate of a limited token
	for range 64 {
		wg.Go(func() {
			for n := range work {
				e, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "127.0.0.1"})
				if err != nil {
					continue
				}
				held <- n.Identity
				if a, err := n.Confirm(e); err == nil {
					_ = p.Applied(f.Context(), a, provisioner.Source{Address: "127.0.0.1"})
				}
			}
		})
	}
	var file string
	for i, n := range nodes {
		if i == len(nodes)/3 {
			file = backUp(t, f)
		}
		work <- n
	}
	close(work)
	wg.Wait()
	restore(t, f, file, time.Time{})
	p = f.Daemon().Operator()
	close(held)
	had := map[string]bool{}
	for id := range held {
		had[id] = true
	}
	again := map[string]int{}
	for _, n := range nodes {
		e, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "127.0.0.1"})
		if (err == nil) != had[n.Identity] {
			t.Errorf("%s: had a certificate: %v, and now: %v", n.Identity, had[n.Identity], err)
		}
		if err != nil {
			continue
		}
		again[n.Token]++
		f.Apply(n, e)
		if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned {
			t.Errorf("%s is %s", n.Identity, r.State)
		}
	}
	for token, n := range again {
		if v := f.TokenID(token); n > uses && n != 64 {
			t.Errorf("token %s of %d uses: %d nodes", v, uses, n)
		}
	}
	f.Check()
}

// TestWithoutTheJournalLimitedTokensAreFrozen loses the journal with the store.
func TestWithoutTheJournalLimitedTokensAreFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token, nodes := limitedNodes(t, f, 3, 4)
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	file := backUp(t, f)
	f.Apply(nodes[1], f.Enroll(nodes[1]))
	loseStore(t, f)
	if err := os.Remove(journalOf(f)); err != nil {
		t.Fatal(err)
	}
	at := f.Clock.Now()
	if _, err := restoring(f, file).Run(f.Context()); err == nil || !strings.Contains(err.Error(), "--accept-lost-since") {
		t.Fatalf("restored without the journal: %v", err)
	}
	late := restoring(f, file)
	late.AcceptLostSince = at.Add(time.Hour)
	if _, err := late.Run(f.Context()); err == nil || !strings.Contains(err.Error(), "the backup is older") {
		t.Fatalf("restored with a later time: %v", err)
	}
	restore(t, f, file, at.Add(-time.Hour))
	for _, n := range nodes[1:] {
		if code := f.Refused(n); code != wire.CodeTokenFrozen {
			t.Errorf("%s: %q", n.Identity, code)
		}
	}
	// Who is on record has the use already, and unlimited tokens lose nothing.
	f.Apply(nodes[0], f.Enroll(nodes[0]))
	f.Enroll(f.Node("open.example.net"))
	// A token that was signed since has lost nothing either.
	f.Clock.Advance(time.Minute)
	fresh, err := simnode.New("fresh.example.net", f.Token(testbed.Limited(1)))
	if err != nil {
		t.Fatal(err)
	}
	f.Enroll(fresh)
	// It holds over a restart, and for every process.
	f.Stop()
	f.Start()
	if code := f.Refused(nodes[1]); code != wire.CodeTokenFrozen {
		t.Errorf("after a restart: %q", code)
	}
	op := f.Daemon().Operator()
	frozen := func() (ids []jwt.TokenID) {
		tokens, err := op.Tokens(f.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if token.Frozen {
				ids = append(ids, token.ID)
			}
		}
		return ids
	}
	if ids := frozen(); !slices.Equal(ids, []jwt.TokenID{f.TokenID(token)}) {
		t.Errorf("frozen: %v, want %v alone", ids, f.TokenID(token))
	}
	if err := op.ThawToken(f.Context(), f.TokenID(token), provisioner.Cause{By: "tester"}); err != nil {
		t.Fatal(err)
	}
	if ids := frozen(); len(ids) > 0 {
		t.Errorf("thawed, and frozen: %v", ids)
	}
	f.Enroll(nodes[1])
	f.Enroll(nodes[2])
	if code := f.Refused(nodes[3]); code != wire.CodeTokenUsedUp {
		t.Errorf("thawed, and past its uses: %q", code)
	}
	f.Check()
	// A backup from now on is complete again; the one before is not.
	now := backUp(t, f)
	loseStore(t, f)
	if _, err := restoring(f, file).Run(f.Context()); err == nil {
		t.Error("an old backup is complete again")
	}
	if _, err := restoring(f, now).Run(f.Context()); err != nil {
		t.Errorf("a new backup: %v", err)
	}
}

// TestWhatTookTrustAwayAfterTheBackup revokes, retires, removes and hands over
// after the backup.
func TestWhatTookTrustAwayAfterTheBackup(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	nodes := f.Nodes(5)
	for _, n := range nodes {
		f.Apply(n, f.Enroll(n))
	}
	revoked, retired, handed, leaked := nodes[0], nodes[1], nodes[2], nodes[3]
	file := backUp(t, f)
	op, cause := f.Daemon().Operator(), provisioner.Cause{By: "tester"}
	other := f.Node(handed.Identity)
	unused := f.Token(nil)
	grant := func() {
		t.Helper()
		if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), wire.Identity(handed.Identity), operate.GrantOrder{}, cause); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	if err := errors.Join(op.RevokeNode(f.Context(), wire.Identity(revoked.Identity), cause), op.RetireNode(f.Context(), wire.Identity(retired.Identity), cause),
		op.RevokeToken(f.Context(), f.TokenID(unused), cause)); err != nil {
		t.Fatal(err)
	}
	f.Apply(other, f.Enroll(other))
	number := op.CRL().Number
	signers, err := op.ListSigners(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	restore(t, f, file, time.Time{})
	op = f.Daemon().Operator()

	f.Eventually("revoked on record", func() bool { return f.Record(revoked.Identity).State == provisioner.StateRevoked })
	if code := f.Refused(revoked); code != wire.CodeIdentityRevoked {
		t.Errorf("revoked: %q", code)
	}
	f.Eventually("retired on record", func() bool { return f.Record(retired.Identity).State == provisioner.StateRetired })
	if by := op.Revocations().Token(f.TokenID(unused)); by == nil {
		t.Error("a revoked token is good again")
	}
	if op.CRL().Number <= number {
		t.Errorf("CRL %d after %d", op.CRL().Number, number)
	}
	// The name is nobody's: neither of those who had it before nor of its own,
	// until somebody says so.
	f.Eventually("handed over: kept out on record", func() bool { return f.Record(handed.Identity).State == provisioner.StateRevoked })
	for _, n := range []*simnode.Node{handed, other} {
		if code := f.Refused(n); code != wire.CodeIdentityRevoked {
			t.Errorf("a name that changed hands: %q", code)
		}
	}
	if err := op.RetireNode(f.Context(), wire.Identity(handed.Identity), cause); err != nil {
		t.Fatal(err)
	}
	f.Apply(other, f.Enroll(other))
	// The grant is spent.
	if code := f.Refused(handed); code != wire.CodeIdentityTaken {
		t.Errorf("with a spent grant: %q", code)
	}
	f.Apply(leaked, f.Enroll(leaked))
	f.Check()

	// The last signer and an operator go after the next backup.
	public, err := jwt.MarshalPublicKey(leaked.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := op.AddOperator(f.Context(), provisioner.NewOperator{Name: "anna", Role: provisioner.RoleViewer, Public: public}, cause); err != nil {
		t.Fatal(err)
	}
	file = backUp(t, f)
	_, err = op.RemoveSigner(f.Context(), signers[0].ID, cause)
	if err := errors.Join(err, op.RemoveOperator(f.Context(), "anna", cause)); err != nil {
		t.Fatal(err)
	}
	restore(t, f, file, time.Time{})
	op = f.Daemon().Operator()
	if list, err := op.ListSigners(f.Context()); err != nil || !list[0].Removed {
		t.Errorf("a removed signer is good again: %+v, %v", list, err)
	}
	if list, err := op.ListOperators(f.Context()); err != nil || len(list) != 1 || !list[0].Removed {
		t.Errorf("a removed operator is one again: %+v, %v", list, err)
	}
}

// TestANodeThatRenewedAfterTheBackupComesBack is kept out with its newer
// certificate, and waits for an operator's grant: nobody else gets its name.
func TestANodeThatRenewedAfterTheBackupComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Apply(n, e)
	file := backUp(t, f)
	f.Clock.Advance(21 * 24 * time.Hour)
	next, second := f.Renew(n, e)
	f.AppliedOverFleet(next, second)
	restore(t, f, file, time.Time{})
	if err := f.Daemon().Admits(f.Context(), "web1.example.net", second.Serial); provisioner.CodeOf(err) != wire.CodeNotIssued {
		t.Errorf("its certificate is on no record, and: %v", err)
	}
	token := f.Token(nil)
	stranger := f.Node(n.Identity)
	next.Token, stranger.Token = token, token
	for _, who := range []*simnode.Node{next, stranger} {
		if code := f.Refused(who); code != wire.CodeIdentityTaken {
			t.Errorf("without a grant: %q", code)
		}
	}
	if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), "web1.example.net", operate.GrantOrder{KeyHash: keyHash(t, second)}, provisioner.Cause{By: "tester"}); err != nil {
		t.Fatal(err)
	}
	if code := f.Refused(stranger); code != wire.CodeIdentityTaken {
		t.Errorf("a stranger with somebody else's grant: %q", code)
	}
	f.Apply(next, f.Enroll(next))
	if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned || r.Decision.Reason != provisioner.ReasonGrant {
		t.Errorf("record %s by %s", r.State, r.Decision.Reason)
	}
	f.Check()
}
