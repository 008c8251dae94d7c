package provisioner_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// jump is how far the clocks of these tests are ahead for a while: by less than a
// certificate lives, so that what was made by them is all to come and not over.
const jump = 20 * 24 * time.Hour

// ahead does something while the clock is ahead, and sets it right.
func ahead(f *testbed.Fleet, do func()) {
	f.Clock.Advance(jump)
	do()
	f.Clock.Advance(-jump)
}

// lasting is a good token, also while the clock is ahead.
func lasting(c *jwt.Claims) { c.ExpiresAt = c.ExpiresAt.Add(2 * jump) }

// TestAUseThatIsHeldByATimeToCome has a node die after its claim while the clock is
// ahead: an operator releases it as late as any other, once somebody has seen for so long
// that nothing comes of it.
func TestAUseThatIsHeldByATimeToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(func(c *jwt.Claims) { testbed.Limited(1)(c); lasting(c) })
	dead := node(t, "web1.example.net", token)
	ahead(f, func() {
		claimed(t, f, dead)
		claimed(t, f, dead) // it tried again
	})
	p, other := provisioners(t, f, 1)[0], provisioners(t, f, 1)[0]
	young := func(p *provisioner.Provisioner) {
		t.Helper()
		if _, err := p.ReleaseClaim(f.Context(), f.TokenID(token), dead.Identity, operator); !errors.Is(err, provisioner.ErrClaimYoung) {
			t.Errorf("release = %v, want %v", err, provisioner.ErrClaimYoung)
		}
	}
	young(p)
	f.Clock.Advance(provisioner.ReleaseAge / 2)
	young(p)
	f.Clock.Advance(provisioner.ReleaseAge/2 + time.Second)
	young(other) // which sees it for the first time
	if released, err := p.ReleaseClaim(f.Context(), f.TokenID(token), dead.Identity, operator); err != nil || len(released) != 1 {
		t.Fatalf("release = %+v, %v", released, err)
	}
	ahead(f, func() { claimed(t, f, dead) }) // it is back: nobody has seen that one
	young(p)
	f.Clock.Advance(provisioner.ReleaseAge + time.Second)
	if _, err := p.ReleaseClaim(f.Context(), f.TokenID(token), dead.Identity, operator); err != nil {
		t.Fatal(err)
	}
	f.Enroll(node(t, "web2.example.net", token))
	f.Check()
}

// TestAUseOfATimeToComeWithALongHistory is not released: nobody knows whether what is gone of
// the name's history names the key.
func TestAUseOfATimeToComeWithALongHistory(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := node(t, web1, f.Token(func(c *jwt.Claims) { testbed.Limited(1)(c); lasting(c) }))
	ahead(f, func() { claimed(t, f, n) })
	flap(f, web1)
	p := provisioners(t, f, 1)[0]
	for _, want := range []error{provisioner.ErrClaimYoung, provisioner.ErrClaimEnrolled} {
		if _, err := p.ReleaseClaim(f.Context(), f.TokenID(n.Token), web1, operator); !errors.Is(err, want) {
			t.Errorf("release = %v, want %v", err, want)
		}
		f.Clock.Advance(provisioner.ReleaseAge + time.Second)
	}
}

// TestAUseIsNotReleasedByATimeToCome asks for a release while the clock is ahead: the node
// has claimed its use just now, and may be about to enroll.
func TestAUseIsNotReleasedByATimeToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := node(t, "web1.example.net", f.Token(func(c *jwt.Claims) { testbed.Limited(1)(c); lasting(c) }))
	claimed(t, f, n)
	ahead(f, func() {
		if _, err := release(t, f, n.Token, n.Identity); !errors.Is(err, provisioner.ErrClaimYoung) {
			t.Errorf("release = %v, want %v", err, provisioner.ErrClaimYoung)
		}
	})
	f.Enroll(n)
	f.Check()
}

// TestANodeGetsNoCertificateToCome has a node enroll while the clock is ahead: no
// broker takes its certificate once that is set right, so it gets another one.
func TestANodeGetsNoCertificateToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	n.Token = f.Token(lasting)
	ahead(f, func() { f.Apply(n, f.Enroll(n)) })
	e := f.Enroll(n)
	f.Apply(n, e)
	f.DialFleet(n, e)
	if again := f.Enroll(n); again.Serial != e.Serial {
		t.Error("asking again gets another certificate")
	}
	f.Check()
}

// TestARenewalGetsNoCertificateToCome is the same for a renewal for the same key, of which the
// answer was lost.
func TestARenewalGetsNoCertificateToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	late := 25 * 24 * time.Hour // of 30 days
	f.Clock.Advance(late)
	if _, refused := renewOver(t, f, n, n); refused != nil {
		t.Fatal(refused)
	}
	f.Clock.Advance(-late)
	f.Clock.Advance(22 * 24 * time.Hour) // due, by the right clock
	e := f.AskRenew(n, first, n).Enrolled
	if e == nil {
		t.Fatalf("refused: %s", f.Cause(web1))
	}
	f.DialFleet(n, e)
}

// TestAOneTimeTokenAfterACertificateToCome gives a name away by a token that was signed
// after a certificate which a clock dates later: that was before the node has confirmed it.
func TestAOneTimeTokenAfterACertificateToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	n.Token = f.Token(lasting)
	once := testbed.Limited(1, web1)
	before := node(t, web1, f.Token(func(c *jwt.Claims) { once(c); lasting(c) }))
	var e *wire.Enrolled
	ahead(f, func() { e = f.Enroll(n) })
	f.Clock.Advance(time.Minute)
	f.Apply(n, e)
	if code := f.Refused(before); code != wire.CodeIdentityTaken {
		t.Errorf("by a token of before: %s, want %s", code, wire.CodeIdentityTaken)
	}
	f.Clock.Advance(time.Minute)
	after := node(t, web1, f.Token(once))
	if r := f.Ask(after); r.Enrolled == nil {
		t.Fatalf("by a token of after: refused: %s", f.Cause(web1))
	}
	f.Check()
}

// TestClonesOfANodeThatEnrolledByATimeToCome are noticed once the clock is right.
func TestClonesOfANodeThatEnrolledByATimeToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	one := f.SealedNode(web1)
	one.Token = f.Token(func(c *jwt.Claims) { f.Seal(c); lasting(c) })
	two := *one
	ahead(f, func() { f.Enroll(one) })
	two.Boot = wire.NewID()
	f.Enroll(one)
	f.Enroll(&two)
	f.Clock.Advance(grace)
	f.Enroll(one)
	if f.Record(web1).Cloned == nil {
		t.Error("two machines with one key are not noticed")
	}
	f.Check()
}

// TestAGrantByATimeToComeIsOver has an operator open a door for an hour while the clock is
// ahead: it is not open for as long as the clock was ahead.
func TestAGrantByATimeToComeIsOver(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	n.Token = f.Token(lasting)
	f.Apply(n, f.Enroll(n))
	grant := func() {
		t.Helper()
		if _, err := f.Daemon().Operator().GrantNode(f.Context(), web1, provisioner.GrantOrder{ID: "repeated"}, operator); err != nil {
			t.Fatal(err)
		}
	}
	ahead(f, grant)
	f.Clock.Advance(2 * time.Hour)
	other := f.Node(web1)
	other.Token = n.Token
	if code := f.Refused(other); code != wire.CodeIdentityTaken {
		t.Errorf("two hours after a grant for one: %s, want %s", code, wire.CodeIdentityTaken)
	}
	grant()
	f.Enroll(other)
	f.Check()
}

// TestAnApprovalByATimeToComeIsOver is the same for approvals.
func TestAnApprovalByATimeToComeIsOver(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node(web1)
	n.Token = f.Token(lasting)
	approve := func() {
		t.Helper()
		f.Refused(n)
		waiting(t, f, n)
		if _, err := f.Daemon().Operator().ApproveNode(f.Context(), web1, "", 0, operator); err != nil {
			t.Fatal(err)
		}
	}
	ahead(f, approve)
	f.Clock.Advance(2 * 24 * time.Hour)
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Errorf("two days after an approval for one: %s, want %s", code, wire.CodeApprovalPending)
	}
	approve()
	f.Enroll(n)
	f.Check()
}

// TestWhoWaitedByATimeToComeIsTakenOffTheList has a node that waits get in over a
// provisioner which does not know that it is listed.
func TestWhoWaitedByATimeToComeIsTakenOffTheList(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node(web1)
	n.Token = f.Token(lasting)
	ahead(f, func() {
		f.Refused(n)
		waiting(t, f, n)
	})
	if _, err := f.Daemon().Operator().AllowNames(f.Context(), web1, 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	other := provisioners(t, f, 1)[0]
	if _, err := other.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	if list, err := other.Waiting(f.Context(), ""); err != nil || len(list) != 0 {
		t.Errorf("it has got in and is listed: %+v, %v", list, err)
	}
}
