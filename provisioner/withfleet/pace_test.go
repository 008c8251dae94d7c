package provisioner_test

import (
	"slices"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// offerPace is the unexported one: how long an offer is not replaced.
const offerPace = 2 * time.Minute

// renewOver is a renewal to a new key without the connection, which would take
// most of a test that makes many.
func renewOver(t *testing.T, f *testbed.Fleet, by, next *simnode.Node) (*wire.Enrolled, *provisioner.Refusal) {
	t.Helper()
	e, err := f.Daemon().Operator().Renew(f.Context(), must(by.Renewal(next))(t), provisioner.Source{Node: wire.Identity(by.Identity)})
	if err == nil {
		return e, nil
	}
	r, ok := err.(*provisioner.Refusal) //nolint:errorlint // as documented
	if !ok {
		t.Fatal(err)
	}
	return nil, r
}

// TestAnOfferIsNotReplacedAtOnce has a node lose the key that it was offered a
// certificate for, over its session and with its token.
func TestAnOfferIsNotReplacedAtOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	staged, second := f.Renew(n, first)
	next, revisions := f.Successor(n), f.Revisions(web1)
	f.Clock.Advance(offerPace / 2)
	early := f.AskRenew(n, first, next).Refusal
	if early == nil || early.Code != wire.CodeBusy || early.Wait() > offerPace/2 || early.Wait() < offerPace/2-30*time.Second {
		t.Fatalf("a third key after %v: %+v, want %s for as long", offerPace/2, early, wire.CodeBusy)
	}
	enroll := next.Request()
	vouch(t, n, enroll)
	reply, err := simnode.Enroll(f.Context(), f.Dial(n.Token), enroll)
	if err != nil || reply.Refusal == nil || reply.Refusal.Code != wire.CodeBusy {
		t.Errorf("with the token: %+v, %v, want %s", reply, err, wire.CodeBusy)
	}
	if again := f.AskRenew(n, first, staged).Enrolled; again == nil || again.Serial != second.Serial {
		t.Errorf("the staged key again: %+v, want certificate %s", again, second.Serial)
	}
	if got := f.Revisions(web1); got != revisions {
		t.Errorf("%d revisions, %d before", got, revisions)
	}
	f.Clock.Advance(early.Wait())
	third := f.AskRenew(n, first, next).Enrolled
	if third == nil {
		t.Fatalf("after the time that it was told: refused: %s", f.Cause(web1))
	}
	f.AppliedOverFleet(next, third)
	if r := f.Record(web1); len(r.Superseded) != 2 || r.Superseded[0].Serial != second.Serial && r.Superseded[1].Serial != second.Serial {
		t.Errorf("superseded: %+v, want %s and %s", r.Superseded, first.Serial, second.Serial)
	}
	f.Check()
}

// TestWhatIsNotPaced changes hands while an offer is young: by an operator's
// word, which waits for nothing.
func TestWhatIsNotPaced(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	_, lost := f.Renew(n, first)
	if err := f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{ID: wire.NewID(), Identity: web1, At: f.Clock.Now(), ExpiresAt: f.Clock.Now().Add(time.Hour)}, provisioner.AnyRevision); err != nil {
		t.Fatal(err)
	}
	taker := f.Node(web1)
	given := f.Enroll(taker)
	f.Apply(taker, given)
	f.Revoke(web1)
	for _, serial := range []string{first.Serial, lost.Serial, given.Serial} {
		f.Eventually("every certificate of both machines is on the CRL", func() bool { return f.OnCRL(serial) })
	}
	f.Check()
}

// TestNoCertificateEscapesTheCRL has a node renew until it is refused, as fast
// as it may, and its record be written until its first revisions are gone.
func TestNoCertificateEscapesTheCRL(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	serials := []string{first.Serial}
	for i := 0; ; i++ {
		next := f.Successor(n)
		e, refused := renewOver(t, f, n, next)
		if refused != nil && refused.After <= offerPace {
			f.Clock.Advance(refused.After)
			continue
		}
		if refused != nil {
			if refused.Code != wire.CodeBusy {
				t.Fatal(refused)
			}
			break
		}
		if serials = append(serials, e.Serial); len(serials) > 80 {
			t.Fatal("nothing bounds the certificates of a node")
		}
		switch i % 3 {
		case 0:
			f.AppliedOverFleet(next, e) // and goes on with it
			n = next
		case 1:
			f.Clock.Advance(offerPace)
		}
	}
	if r := f.Record(web1); len(r.Superseded) < 60 {
		t.Errorf("%d superseded certificates, want nearly all of %d", len(r.Superseded), len(serials))
	}
	for range 70 {
		f.PutRecord(web1, func(r *provisioner.Record) { r.Attempt = wire.NewID() })
	}
	f.Revoke(web1)
	f.Eventually("every certificate is on the CRL", func() bool {
		return !slices.ContainsFunc(serials, func(s string) bool { return !f.OnCRL(s) })
	})
	f.Check()
}

// TestRenewalsDoNotStrandTheNode has a node lose its staged key again and again:
// the one that it has stays good.
func TestRenewalsDoNotStrandTheNode(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	for i := range provisioner.MaxLineage + 4 {
		if _, refused := renewOver(t, f, n, f.Successor(n)); refused != nil {
			t.Fatalf("renewal %d: %v", i, refused)
		}
		f.Clock.Advance(offerPace)
	}
	if r := f.Ask(n); r.Enrolled == nil || r.Enrolled.Serial != first.Serial {
		t.Errorf("the live key enrolls: %+v, want certificate %s", r, first.Serial)
	}
	if r := f.Record(web1); len(r.Lineage) != provisioner.MaxLineage {
		t.Errorf("%d keys in the lineage, want %d", len(r.Lineage), provisioner.MaxLineage)
	}
	f.Check()
}

// TestARetiredNameOwesNothing gives a name to another machine after its first
// one had as many certificates as it may: they stay on record and on the CRL,
// and the new machine does not wait for them.
func TestARetiredNameOwesNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	issued := 0
	for refused := (*provisioner.Refusal)(nil); refused == nil; issued++ {
		if issued > 80 {
			t.Fatal("nothing bounds the certificates of a node")
		}
		next := f.Successor(n)
		var e *wire.Enrolled
		if e, refused = renewOver(t, f, n, next); refused == nil {
			f.AppliedOverFleet(next, e)
			n = next
		}
	}
	f.Retire(web1)
	heir, given := provisioned(f, web1)
	if r := f.Record(web1); !slices.ContainsFunc(r.Superseded, func(c provisioner.RevokedCertificate) bool { return c.Serial == first.Serial }) {
		t.Error("the record forgot the certificates of the machine before")
	}
	heir, given = f.Renew(heir, given)
	f.AppliedOverFleet(heir, given)
	f.Clock.Advance(31 * 24 * time.Hour)
	acceptClock(t, f)
	heir.Token = f.Token(nil)
	f.Enroll(heir)
	if r := f.Record(web1); len(r.Superseded) != 0 {
		t.Errorf("still remembered after they have expired: %+v", r.Superseded)
	}
}

// TestARevokedCertificateIsNotRepeated asks with the key of a record that was
// made from a backup of before a retirement.
func TestARevokedCertificateIsNotRepeated(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	before := f.Record(web1)
	f.Retire(web1)
	f.Eventually("the retirement is on record", func() bool { return f.Record(web1).State == provisioner.StateRetired })
	f.PutRecord(web1, func(r *provisioner.Record) {
		through := r.RevokedThrough
		*r = *before
		r.RevokedThrough = through
	})
	if r := f.Ask(n); r.Refusal == nil || r.Refusal.Code != wire.CodeIdentityRevoked.ToldAs() {
		t.Errorf("reply = %+v, want %s for the revoked certificate %s", r, wire.CodeIdentityRevoked, first.Serial)
	}
}
