package provisioner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// TestAOneTimeTokenGivesAnIdentityToAnotherKey: a reinstalled machine comes with tokens of every kind.
func TestAOneTimeTokenGivesAnIdentityToAnotherKey(t *testing.T) {
	t.Parallel()
	named := func(patterns ...wire.Pattern) func(*jwt.Claims) { return testbed.Limited(1, patterns...) }
	issued := func(s story, after time.Duration) func(*jwt.Claims) {
		return func(c *jwt.Claims) {
			named(wire.Pattern(s.name))(c)
			c.IssuedAt = s.Record(s.name).Current.OfferedAt.Add(after)
		}
	}
	tests := map[string]struct {
		clock   bool                        // the row moves the clock
		prepare func(t *testing.T, s story) // after the first machine is provisioned
		token   func(s story) func(*jwt.Claims)
		want    wire.Code // "" is enrolled
		reason  provisioner.Reason
	}{
		"signed a second after the certificate": {token: func(s story) func(*jwt.Claims) {
			return issued(s, time.Second)
		}, reason: provisioner.ReasonOneTimeToken},
		"signed in the same second": {token: func(s story) func(*jwt.Claims) { return issued(s, 0) },
			want: wire.CodeIdentityTaken},
		"signed before the certificate": {token: func(s story) func(*jwt.Claims) { return issued(s, -time.Second) },
			want: wire.CodeIdentityTaken},
		"for two uses": {token: func(s story) func(*jwt.Claims) { return testbed.Limited(2, wire.Pattern(s.name)) },
			want: wire.CodeIdentityTaken},
		"unlimited": {token: func(s story) func(*jwt.Claims) {
			return testbed.Limited(0, wire.Pattern(s.name))
		}, want: wire.CodeIdentityTaken},
		"for any identity": {token: func(story) func(*jwt.Claims) { return named() }, want: wire.CodeIdentityTaken},
		"for a pattern": {token: func(story) func(*jwt.Claims) { return named("web?.example.net") },
			want: wire.CodeIdentityTaken},
		"for two identities": {token: func(s story) func(*jwt.Claims) {
			return named(wire.Pattern(s.name), "web2.example.net")
		}, want: wire.CodeIdentityTaken},
		"for another identity": {token: func(story) func(*jwt.Claims) { return named("web2.example.net") },
			want: wire.CodeTokenIdentity},
		"of a revoked identity": {
			prepare: func(_ *testing.T, s story) {
				s.PutRecord(s.name, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
			},
			token: func(s story) func(*jwt.Claims) { return issued(s, time.Second) }, want: wire.CodeIdentityRevoked,
		},
		"of a retired identity": {
			prepare: func(_ *testing.T, s story) {
				s.PutRecord(s.name, func(r *provisioner.Record) {
					r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil
				})
			},
			token:  func(s story) func(*jwt.Claims) { return named(wire.Pattern(s.name)) },
			reason: provisioner.ReasonNew,
		},
		"beside a grant": {
			prepare: func(t *testing.T, s story) {
				if err := putGrant(s, &orders.Grant{
					ID:        wire.NewID(),
					Identity:  wire.Identity(s.name),
					At:        s.Clock.Now(),
					ExpiresAt: s.Clock.Now().Add(time.Hour),
				}); err != nil {
					t.Fatal(err)
				}
			},
			token:  func(s story) func(*jwt.Claims) { return issued(s, time.Second) },
			reason: provisioner.ReasonOneTimeToken,
		},
		"signed after the certificate and before one that is not confirmed yet": {
			clock: true,
			prepare: func(t *testing.T, s story) {
				first := node(t, s.name, s.Token(issued(s, time.Second)))
				s.Clock.Advance(10 * time.Second)
				s.Enroll(first)
			},
			token: func(s story) func(*jwt.Claims) { return issued(s, 2*time.Second) }, want: wire.CodeIdentityTaken,
		},
		"signed after one that is not confirmed yet": {
			clock: true,
			prepare: func(t *testing.T, s story) {
				s.Clock.Advance(10 * time.Second)
				s.Enroll(node(t, s.name, s.Token(issued(s, time.Second))))
			},
			token:  func(s story) func(*jwt.Claims) { return issued(s, 15*time.Second) },
			reason: provisioner.ReasonOneTimeToken,
		},
	}
	shared := testbed.New(t, testbed.Options{})
	t.Cleanup(shared.Check)
	names := 'a'
	for what, tt := range tests {
		s := story{shared, fmt.Sprintf("web%c.example.net", names)}
		names++
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if tt.clock {
				s.Fleet = testbed.New(t, testbed.Options{})
				t.Cleanup(s.Check)
			}
			f, name := s.Fleet, s.name
			before := f.Node(name)
			f.Apply(before, f.Enroll(before))
			if tt.prepare != nil {
				tt.prepare(t, s)
			}
			old := f.Record(name)
			token := f.Token(tt.token(s))
			n := node(t, name, token)
			if tt.want != "" {
				if got := f.Refused(n); got != tt.want {
					t.Errorf("refused as %s, want %s", got, tt.want)
				}
				if got := len(entries(t, f, token)); got > 0 {
					t.Errorf("a refused request has written %d claims", got)
				}
				return
			}
			e := f.Enroll(n)
			r := f.Record(name)
			if r.Decision.Reason != tt.reason || len(r.Lineage) != 1 || r.Lineage[0] != keyHash(t, n) ||
				r.Next.Serial != e.Serial {
				t.Errorf("record = %+v, want the new key's alone by %s", r, tt.reason)
			}
			// Until the new machine has confirmed, the old one stays.
			if old.Current != nil && (r.Current == nil || r.Current.Serial != old.Current.Serial) {
				t.Errorf("current = %+v, want the old one", r.Current)
			}
			if got := report(t, f, token); got.Used != 1 || got.UsedBy[0].State != trust.UseEnrolled {
				t.Errorf("report = %+v", got)
			}
			f.Apply(n, e)
			// The token is spent.
			if got := f.Refused(node(t, name, token)); got != wire.CodeIdentityTaken && got != wire.CodeTokenUsedUp {
				t.Errorf("a third key is refused as %s", got)
			}
			// The key before has lost its claim. A grant is not spent, and admits any.
			if what != "beside a grant" {
				if got := f.Refused(before); got != wire.CodeIdentityTaken {
					t.Errorf("the first machine is refused as %s", got)
				}
			}
			// The second machine comes back with its spent token.
			f.Enroll(n)
		})
	}
}

// TestAOneTimeTokenSurvivesItsCertificate: after expiry the key continues without another use.
func TestAOneTimeTokenSurvivesItsCertificate(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(func(c *jwt.Claims) {
		testbed.Limited(1, "web1.example.net")(c)
		c.ExpiresAt = c.IssuedAt.Add(365 * 24 * time.Hour)
	})
	n := node(t, "web1.example.net", token)
	f.Apply(n, f.Enroll(n))
	f.Clock.Advance(31 * 24 * time.Hour)
	f.Apply(n, f.Enroll(n))
	if r := f.Record(n.Identity); r.Decision.Reason != provisioner.ReasonContinue {
		t.Errorf("continued by %s", r.Decision.Reason)
	}
	if got := len(entries(t, f, token)); got != 1 {
		t.Errorf("%d entries, want the first claim alone", got)
	}
	f.Check()
}

// TestAnAgentWithAOneTimeTokenRestartsInTheMiddle stops an agent while its record is written.
func TestAnAgentWithAOneTimeTokenRestartsInTheMiddle(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1, "web1.example.net"))
	writing, stopped := make(chan struct{}), make(chan struct{})
	f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) { close(writing); <-stopped })
	f.Faults.RecordWrites.Inject(testbed.LostAnswer)
	a := f.Agent("web1.example.net", token)
	<-writing
	a.Stop()
	close(stopped)
	f.Stop()
	f.Start()
	a.Start()
	f.WaitProvisioned(a)
	if r := report(t, f, token); r.Used != 1 || r.Left == nil || *r.Left != 0 || len(r.UsedBy) != 1 ||
		r.UsedBy[0].State != trust.UseEnrolled {
		t.Errorf("report = %+v", r)
	}
	if got := f.Refused(node(t, "web1.example.net", token)); got != wire.CodeIdentityTaken {
		t.Errorf("another key is refused as %s", got)
	}
	f.Check()
}
