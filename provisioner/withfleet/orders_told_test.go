package provisioner_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// An order is what an operator has done, at a fleet that is made for it.
type order struct {
	event  provisioner.EventType
	before func(*testing.T, *testbed.Fleet)                                      // makes what it is about
	give   func(context.Context, *provisioner.Provisioner, *testbed.Fleet) error // harmless to repeat

	// over is the answer to who repeats it, nil where that is as if nothing was said
	// before. Then it is another entry, of which there is another event, unless asIs.
	over error
	asIs bool
}

// unanswered gives an order to a fleet whose store does not say whether it has taken it,
// and returns how often one like it was told of before.
func (o *order) unanswered(t *testing.T, fault testbed.Fault) (f *testbed.Fleet, before int) {
	t.Helper()
	f = testbed.New(t, testbed.Options{DefaultPolicy: true})
	o.before(t, f)
	before = ordersTold(f, o.event)
	f.Faults.Entries(fault)
	if err := o.give(f.Context(), f.Daemon().Operator(), f); !errors.Is(err, testbed.ErrInjected) {
		t.Fatalf("the order: %v, want %v", err, testbed.ErrInjected)
	}
	return f, before
}

// theirs is a public key of somebody, and whose signer's it is.
func theirs(t *testing.T) ([]byte, jwt.SignerID) {
	t.Helper()
	_, public, id := newSigner(t)
	return public, id
}

// orders are those of which the store has an entry, but for revocations.
func orders(t *testing.T) map[string]order {
	t.Helper()
	public, id := theirs(t)
	addSigner := func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
		_, err := p.AddSigner(ctx, provisioner.NewSigner{Public: public, Name: "racks"}, operator)
		return err
	}
	addOperator := func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
		_, err := p.AddOperator(ctx, provisioner.NewOperator{Name: "vera", Role: provisioner.RoleViewer, Public: public}, operator)
		return err
	}
	pause := func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
		_, err := p.Pause(ctx, "", false, operator)
		return err
	}
	allow := func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
		_, err := p.AllowNames(ctx, "db*.example.net", 0, 0, false, operator)
		return err
	}
	done := func(give func(context.Context, *provisioner.Provisioner, *testbed.Fleet) error) func(*testing.T, *testbed.Fleet) {
		return func(t *testing.T, f *testbed.Fleet) {
			t.Helper()
			if err := give(f.Context(), f.Daemon().Operator(), f); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*testing.T, *testbed.Fleet) {}
	waits := func(t *testing.T, f *testbed.Fleet) {
		t.Helper()
		n := f.Node(web1)
		f.Refused(n)
		waiting(t, f, n)
	}
	grant := provisioner.GrantOrder{ID: wire.NewID()}
	return map[string]order{
		"a signer is added": {event: provisioner.EventSignerAdded, before: nothing, give: addSigner},
		"a signer is removed": {
			event: provisioner.EventSignerRemoved, before: done(addSigner), asIs: true,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				_, err := p.RemoveSigner(ctx, id, operator)
				return err
			},
		},
		"an operator is added": {event: provisioner.EventOperatorAdded, before: nothing, give: addOperator},
		"an operator is removed": {
			event: provisioner.EventOperatorRemoved, before: done(addOperator), asIs: true,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				return p.RemoveOperator(ctx, "vera", operator)
			},
		},
		"a pause": {event: provisioner.EventPaused, before: nothing, give: pause},
		"a resumption": {
			event: provisioner.EventResumed, before: done(pause), over: provisioner.ErrNotPaused,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				return p.Resume(ctx, "", operator)
			},
		},
		"names are allowed": {event: provisioner.EventAllowed, before: nothing, give: allow},
		"names are no longer allowed": {
			event: provisioner.EventDisallowed, before: done(allow), over: provisioner.ErrNotAllowed,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				return p.DisallowNames(ctx, "db*.example.net", operator)
			},
		},
		"an approval": {
			event: provisioner.EventApproved, before: waits,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				_, err := p.ApproveNode(ctx, web1, "", 0, operator)
				return err
			},
		},
		"a rejection": {
			event: provisioner.EventRejected, before: waits, asIs: true,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				_, err := p.RejectNode(ctx, web1, "", operator)
				return err
			},
		},
		"what was said is forgotten": {
			event: provisioner.EventForgotten, over: provisioner.ErrNotWaiting,
			before: func(t *testing.T, f *testbed.Fleet) {
				t.Helper()
				waits(t, f)
				if _, err := f.Daemon().Operator().RejectNode(f.Context(), web1, "", operator); err != nil {
					t.Fatal(err)
				}
			},
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				_, err := p.ForgetNode(ctx, web1, "", operator)
				return err
			},
		},
		"a grant": {
			event: provisioner.EventGranted, asIs: true,
			before: func(t *testing.T, f *testbed.Fleet) {
				t.Helper()
				done(allow)(t, f)
				provisioned(f, "db1.example.net")
			},
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				_, err := p.GrantNode(ctx, "db1.example.net", grant, operator)
				return err
			},
		},
		"a frozen token is thawed": {
			event: provisioner.EventTokenThawed, before: freeze,
			give: func(ctx context.Context, p *provisioner.Provisioner, _ *testbed.Fleet) error {
				return p.ThawToken(ctx, "0123456789abcdef0123456789abcdef", operator)
			},
		},
	}
}

// freeze leaves a fleet as a restore does that has lost uses of tokens.
func freeze(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	now := f.Clock.Now().UTC().Truncate(time.Second)
	b, err := json.Marshal(provisioner.Freeze{ID: wire.NewID(), At: now, Since: now})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := f.Daemon().Connect("a restore")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.RequestWithContext(f.Context(), "muster.entry.freeze", b); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	f.Start()
}

// ordersTold counts the events of an order.
func ordersTold(f *testbed.Fleet, event provisioner.EventType) int { return toldOf(f, event, operator) }

// toldOf counts the events of an order that somebody has given.
func toldOf(f *testbed.Fleet, event provisioner.EventType, by provisioner.Cause) int {
	n := 0
	for _, e := range f.Events() {
		if e.Type == event && e.By == by.By && e.Why == by.Why {
			n++
		}
	}
	return n
}

// TestAnOrderOfUnknownOutcomeIsTold has the store write what an operator orders and not say
// so. Whether the operator asks again or not, and though there may be nothing left to do
// then, it is told, once.
func TestAnOrderOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	for name, o := range orders(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, before := o.unanswered(t, testbed.LostAnswer)
			f.Eventually("it is told", func() bool { return ordersTold(f, o.event) > before })
			want := before + 1
			if err := o.give(f.Context(), f.Daemon().Operator(), f); !errors.Is(err, o.over) {
				t.Errorf("the order is repeated: %v, want %v", err, o.over)
			}
			if o.over == nil && !o.asIs {
				want++
			}
			f.Check()
			if n := ordersTold(f, o.event); n != want {
				t.Errorf("told %d times, want %d", n, want)
			}
		})
	}
}

// TestAnOrderThatWasLostIsNotTold has the store not write what an operator orders: it is
// told when it is written, which is when the operator asks again.
func TestAnOrderThatWasLostIsNotTold(t *testing.T) {
	t.Parallel()
	for name, o := range orders(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, before := o.unanswered(t, testbed.Lost)
			if n := ordersTold(f, o.event); n != before {
				t.Errorf("told %d times before it is so", n-before)
			}
			if err := o.give(f.Context(), f.Daemon().Operator(), f); err != nil {
				t.Errorf("the order is repeated: %v", err)
			}
			f.Check()
			if n := ordersTold(f, o.event); n != before+1 {
				t.Errorf("told %d times, want once", n-before)
			}
		})
	}
}

// TestAGrantThatIsReplacedIsTold has the store write a grant and not say so, and an operator
// give another one at once: both are told, though only the later one is there.
func TestAGrantThatIsReplacedIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	f.Apply(n, f.Enroll(n))
	f.Faults.Entries(testbed.LostAnswer)
	p := f.Daemon().Operator()
	if _, err := p.GrantNode(f.Context(), web1, provisioner.GrantOrder{}, operator); !errors.Is(err, testbed.ErrInjected) {
		t.Fatalf("grant = %v, want %v", err, testbed.ErrInjected)
	}
	if _, err := p.GrantNode(f.Context(), web1, provisioner.GrantOrder{}, operator); err != nil {
		t.Fatal(err)
	}
	f.Check()
	if n := ordersTold(f, provisioner.EventGranted); n != 2 {
		t.Errorf("told %d times, want twice", n)
	}
}

// TestAnOrderIsToldWhoeverRepeatsIt has the store write what an operator orders and not say so,
// and somebody else order the same at once, which it takes, or does not: that there was a
// first one is told, and of the second if it is so.
func TestAnOrderIsToldWhoeverRepeatsIt(t *testing.T) {
	t.Parallel()
	const frozen = "0123456789abcdef0123456789abcdef"
	ben := provisioner.Cause{By: "ben", Why: "nobody has answered ann"}
	t.Run("a thaw, and one that is lost", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{DefaultPolicy: true})
		freeze(t, f)
		f.Faults.Entries(testbed.LostAnswer, testbed.Lost)
		for _, c := range []provisioner.Cause{operator, ben} {
			if err := f.Daemon().Operator().ThawToken(f.Context(), frozen, c); !errors.Is(err, testbed.ErrInjected) {
				t.Fatalf("thaw = %v, want %v", err, testbed.ErrInjected)
			}
		}
		f.Eventually("it is told", func() bool { return ordersTold(f, provisioner.EventTokenThawed) == 1 })
		f.Check()
		if n := toldOf(f, provisioner.EventTokenThawed, ben); n != 0 {
			t.Errorf("the one that is lost is told %d times", n)
		}
	})
	t.Run("a thaw, and another one", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{DefaultPolicy: true})
		freeze(t, f)
		f.Faults.Entries(testbed.LostAnswer)
		if err := f.Daemon().Operator().ThawToken(f.Context(), frozen, operator); !errors.Is(err, testbed.ErrInjected) {
			t.Fatalf("thaw = %v, want %v", err, testbed.ErrInjected)
		}
		if err := f.Daemon().Operator().ThawToken(f.Context(), frozen, ben); err != nil {
			t.Fatal(err)
		}
		f.Check()
		if first, second := ordersTold(f, provisioner.EventTokenThawed), toldOf(f, provisioner.EventTokenThawed, ben); first != 1 || second != 1 {
			t.Errorf("told %d times and %d times, want each once", first, second)
		}
	})
	t.Run("a token that is issued", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		ctx, giveUp := context.WithCancel(f.Context())
		giveUp()
		text := f.Token(testbed.Limited(1, web1))
		if _, err := f.Daemon().Operator().IssueToken(ctx, text, operator); !errors.Is(err, context.Canceled) {
			t.Fatalf("issue = %v, want %v", err, context.Canceled)
		}
		if _, err := f.Daemon().Operator().IssueToken(f.Context(), text, ben); err != nil {
			t.Fatal(err)
		}
		f.Eventually("the first is told", func() bool { return ordersTold(f, provisioner.EventTokenIssued) == 1 })
		f.Check()
		if n := toldOf(f, provisioner.EventTokenIssued, ben); n != 1 {
			t.Errorf("the second is told %d times, want once", n)
		}
	})
}

// TestAReleaseOfUnknownOutcomeIsTold has an operator give up while the release of a use is on
// its way to the log of its token: who asks again finds no use to release.
func TestAReleaseOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	token := f.Token(testbed.Limited(1))
	dead := node(t, "dead.example.net", token)
	claimed(t, f, dead)
	f.Clock.Advance(provisioner.ReleaseAge + time.Second)
	p := f.Daemon().Operator()
	ctx, giveUp := context.WithCancel(f.Context())
	defer giveUp()
	f.Faults.BeforeClaims(func(context.Context, *provisioner.ClaimEntry) { giveUp() })
	f.Faults.InjectClaims(testbed.Late)
	if _, err := p.ReleaseClaim(ctx, f.TokenID(token), dead.Identity, operator); !errors.Is(err, testbed.ErrInjected) {
		t.Fatalf("release = %v, want %v", err, testbed.ErrInjected)
	}
	f.Enroll(node(t, "web2.example.net", f.Token(testbed.Limited(1)))) // by now it is there
	f.Eventually("it is told", func() bool { return ordersTold(f, provisioner.EventTokenReleased) > 0 })
	if _, err := p.ReleaseClaim(f.Context(), f.TokenID(token), dead.Identity, operator); !errors.Is(err, provisioner.ErrNoClaim) {
		t.Errorf("asked again = %v, want %v", err, provisioner.ErrNoClaim)
	}
	f.Check()
	if n := ordersTold(f, provisioner.EventTokenReleased); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

// TestATokenIssuedToNobodyIsTold has an operator give up before the token is listed: it is,
// and that is told.
func TestATokenIssuedToNobodyIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	ctx, giveUp := context.WithCancel(f.Context())
	giveUp()
	text := f.Token(testbed.Limited(1, web1))
	if _, err := f.Daemon().Operator().IssueToken(ctx, text, operator); !errors.Is(err, context.Canceled) {
		t.Fatalf("issue = %v, want %v", err, context.Canceled)
	}
	f.Eventually("it is told", func() bool { return ordersTold(f, provisioner.EventTokenIssued) == 1 })
	f.Check()
}
