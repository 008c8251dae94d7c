package provisioner_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/broker"
	"muster/provisioner/orders"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// A claimant is a machine that asks for an identity.
type claimant struct {
	*simnode.Node
	word *simnode.Node // its key vouches; nil for none
}

func (c claimant) ask(t *testing.T, f *testbed.Fleet) *wire.Reply {
	t.Helper()
	r := c.Request()
	if c.word != nil {
		vouch(t, c.word, r)
	}
	nc := f.Dial(c.Token)
	defer nc.Close()
	reply, err := simnode.Enroll(f.Context(), nc, r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// A story is the history of one name of a fleet.
type story struct {
	*testbed.Fleet
	name string
}

func (s story) node() *simnode.Node { return s.Node(s.name) }

// own provisions a new machine under the name.
func (s story) own() (*simnode.Node, *wire.Enrolled) { return provisioned(s.Fleet, s.name) }

// stranger is a new machine that no key vouches for.
func (s story) stranger() claimant { return claimant{Node: s.node()} }

// again is a machine with a fresh token.
func (s story) again(n *simnode.Node) claimant {
	n.Token = s.Token(nil)
	return claimant{Node: n}
}

// grant admits another key to this name, for an hour unless g says otherwise.
func (s story) grant(t *testing.T, g orders.Grant) {
	t.Helper()
	g.ID = wire.NewID()
	if g.Identity == "" {
		g.Identity = wire.Identity(s.name)
	}
	if g.At.IsZero() {
		g.At = s.Clock.Now()
	}
	if g.ExpiresAt.IsZero() {
		g.ExpiresAt = s.Clock.Now().Add(time.Hour)
	}
	if err := putGrant(s, &g); err != nil {
		t.Fatal(err)
	}
}

// reason is the reason of the last enrollment.
func (s story) reason() provisioner.Reason {
	for _, e := range slices.Backward(s.Events()) {
		if e.Type == events.Enrolled && e.Node == s.name {
			return provisioner.Reason(e.Reason)
		}
	}
	return ""
}

// TestIdentityBelongsToItsKeys has a row per rule: a history of a name, and a claimant.
func TestIdentityBelongsToItsKeys(t *testing.T) {
	t.Parallel()
	retire := func(r *provisioner.Record) { r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil }
	revoke := func(r *provisioner.Record) { r.State = provisioner.StateRevoked }
	const expiry = 31 * 24 * time.Hour

	tests := map[string]struct {
		clock  bool // the story moves the clock
		story  func(t *testing.T, s story) claimant
		reason provisioner.Reason // empty: refused
		code   wire.Code
	}{
		"never seen": {false, func(t *testing.T, s story) claimant { return s.stranger() }, provisioner.ReasonNew, ""},
		"never seen, vouched for by another key": {false, func(t *testing.T, s story) claimant {
			return claimant{Node: s.node(), word: s.Node("other-" + s.name)}
		}, provisioner.ReasonNew, ""},

		"the machine itself, again": {false,
			func(t *testing.T, s story) claimant { n, _ := s.own(); return s.again(n) }, provisioner.ReasonReplay, ""},
		"the machine itself, before it has confirmed": {false, func(t *testing.T, s story) claimant {
			n := s.node()
			s.Enroll(n)
			return s.again(n)
		}, provisioner.ReasonReplay, ""},
		"reinstalled: a new key and nothing else": {false,
			func(t *testing.T, s story) claimant { s.own(); return s.stranger() }, "", wire.CodeIdentityTaken},
		"reinstalled, before the first one confirmed": {false, func(t *testing.T, s story) claimant {
			s.Enroll(s.node())
			return s.stranger()
		}, "", wire.CodeIdentityTaken},

		"another key, by the word of the current one": {false, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			return claimant{s.Successor(n), n}
		}, provisioner.ReasonContinuity, ""},
		"another key, by the word of one before it": {false, func(t *testing.T, s story) claimant {
			n, e := s.own()
			next, second := s.Renew(n, e)
			s.AppliedOverFleet(next, second)
			return claimant{s.Successor(n), n}
		}, provisioner.ReasonContinuity, ""},
		"another key, by the word of one that has expired": {true, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.Clock.Advance(expiry)
			return claimant{s.again(s.Successor(n)).Node, n}
		}, provisioner.ReasonContinuity, ""},
		"another key, by its own word": {false, func(t *testing.T, s story) claimant {
			s.own()
			n := s.node()
			return claimant{n, n}
		}, "", wire.CodeIdentityTaken},
		"another key, by the word of another node": {false, func(t *testing.T, s story) claimant {
			s.own()
			other, _ := provisioned(s.Fleet, "other-"+s.name)
			return claimant{s.node(), other}
		}, "", wire.CodeIdentityTaken},
		"another key, by the word of a key that lost the name": {false, func(t *testing.T, s story) claimant {
			before, _ := s.own()
			s.PutRecord(s.name, retire)
			s.own()
			return claimant{s.node(), before}
		}, "", wire.CodeIdentityTaken},

		"expired: a stranger": {true, func(t *testing.T, s story) claimant {
			s.own()
			s.Clock.Advance(expiry)
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"switched off for years: a stranger": {true, func(t *testing.T, s story) claimant {
			s.own()
			s.Clock.Advance(3 * 365 * 24 * time.Hour)
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"expired before it ever confirmed: a stranger": {true, func(t *testing.T, s story) claimant {
			s.Enroll(s.node())
			s.Clock.Advance(expiry)
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"expired: the machine itself": {true, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.Clock.Advance(expiry)
			return s.again(n)
		}, provisioner.ReasonContinue, ""},
		"switched off for years: the machine itself": {true, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.Clock.Advance(3 * 365 * 24 * time.Hour)
			return s.again(n)
		}, provisioner.ReasonContinue, ""},
		"expired during a renewal: the key it was changing to": {true, func(t *testing.T, s story) claimant {
			n, e := s.own()
			next, _ := s.Renew(n, e)
			s.Clock.Advance(expiry)
			return s.again(next)
		}, provisioner.ReasonContinue, ""},
		"restored from a backup: the key before a renewal": {false, func(t *testing.T, s story) claimant {
			n, e := s.own()
			next, second := s.Renew(n, e)
			s.AppliedOverFleet(next, second)
			return s.again(n)
		}, provisioner.ReasonContinue, ""},

		"a grant": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			return s.stranger()
		}, provisioner.ReasonGrant, ""},
		"a grant, spent": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			s.own()
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant, spent by a machine that never confirmed": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			s.Enroll(s.node())
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant, spent: the machine before it": {false, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.grant(t, orders.Grant{})
			s.own()
			return s.again(n)
		}, "", wire.CodeIdentityTaken},
		"a grant, spent: the machine itself, again": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			n := s.node()
			s.Enroll(n)
			return s.again(n)
		}, provisioner.ReasonReplay, ""},
		"a second grant after the first is spent": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			s.own()
			s.grant(t, orders.Grant{})
			return s.stranger()
		}, provisioner.ReasonGrant, ""},
		"a grant, expired": {true, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{})
			s.Clock.Advance(time.Hour + time.Second)
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant, left over from an owner before": {true, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{ExpiresAt: s.Clock.Now().Add(24 * time.Hour)})
			s.Retire(s.name)
			s.Clock.Advance(2 * time.Second)
			s.own()
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant for this fingerprint": {false, func(t *testing.T, s story) claimant {
			s.own()
			n := s.stranger()
			s.grant(t, orders.Grant{KeyHash: keyHash(t, n.Node)})
			return n
		}, provisioner.ReasonGrant, ""},
		"a grant for another fingerprint": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{KeyHash: keyHash(t, s.node())})
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant for a fingerprint, spent": {false, func(t *testing.T, s story) claimant {
			s.own()
			n := s.stranger()
			s.grant(t, orders.Grant{KeyHash: keyHash(t, n.Node)})
			s.Apply(n.Node, s.Enroll(n.Node))
			return s.stranger()
		}, "", wire.CodeIdentityTaken},
		"a grant for another name": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.grant(t, orders.Grant{Identity: wire.Identity(strings.TrimSuffix(s.name, ".net"))})
			s.grant(t, orders.Grant{Identity: wire.Identity(strings.TrimSuffix(s.name, ".example.net"))})
			return s.stranger()
		}, "", wire.CodeIdentityTaken},

		"retired: anybody": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.PutRecord(s.name, retire)
			return s.stranger()
		}, provisioner.ReasonNew, ""},
		"retired and taken: the machine before": {false, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.PutRecord(s.name, retire)
			s.own()
			return s.again(n)
		}, "", wire.CodeIdentityTaken},
		"revoked: the machine itself": {false, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.PutRecord(s.name, revoke)
			return s.again(n)
		}, "", wire.CodeIdentityRevoked},
		"revoked: a stranger": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.PutRecord(s.name, revoke)
			return s.stranger()
		}, "", wire.CodeIdentityRevoked},
		"revoked: another key, by the word of its own": {false, func(t *testing.T, s story) claimant {
			n, _ := s.own()
			s.PutRecord(s.name, revoke)
			return claimant{s.Successor(n), n}
		}, "", wire.CodeIdentityRevoked},
		"revoked: with a grant": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.PutRecord(s.name, revoke)
			s.grant(t, orders.Grant{})
			return s.stranger()
		}, "", wire.CodeIdentityRevoked},
		"revoked, then expired": {true, func(t *testing.T, s story) claimant {
			s.own()
			s.PutRecord(s.name, revoke)
			s.Clock.Advance(expiry)
			return s.stranger()
		}, "", wire.CodeIdentityRevoked},
		"revoked, then retired": {false, func(t *testing.T, s story) claimant {
			s.own()
			s.PutRecord(s.name, revoke)
			s.PutRecord(s.name, retire)
			return s.stranger()
		}, provisioner.ReasonNew, ""},
	}
	shared := testbed.New(t, testbed.Options{})
	t.Cleanup(shared.Check)
	n := 0
	for name, tt := range tests {
		n++
		s := story{shared, fmt.Sprintf("web%d.example.net", n)}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.clock {
				s.Fleet = testbed.New(t, testbed.Options{})
				t.Cleanup(s.Check)
			}
			c := tt.story(t, s)
			before := s.Record(s.name)
			reply := c.ask(t, s.Fleet)
			if tt.reason == "" {
				if reply.Refusal == nil || reply.Refusal.Code != tt.code.SentAs() ||
					!strings.HasPrefix(s.Cause(s.name), string(tt.code)+":") {
					t.Fatalf("reply = %+v (%s), want refused as %s", reply, s.Cause(s.name), tt.code)
				}
				if diff := cmp.Diff(before, s.Record(s.name)); diff != "" {
					t.Errorf("a refused request changed the record (-before +after):\n%s", diff)
				}
				return
			}
			if reply.Enrolled == nil {
				t.Fatalf("refused: %s", s.Cause(s.name))
			}
			r := s.Record(s.name)
			if got := s.reason(); got != tt.reason || !slices.Contains(r.Lineage, keyHash(t, c.Node)) {
				t.Errorf("let in as %q with lineage %v, want %q", got, r.Lineage, tt.reason)
			}
			if kept := before != nil && slices.ContainsFunc(before.Lineage,
				func(h string) bool { return slices.Contains(r.Lineage, h) }); kept ==
				(tt.reason == provisioner.ReasonNew || tt.reason == provisioner.ReasonGrant) {
				t.Errorf("lineage %v after %+v: a grant and a retirement start a new one, the rest go on", r.Lineage,
					before)
			}
			if got := s.Apply(c.Node, reply.Enrolled); got.Applied == nil {
				t.Errorf("confirmation: %+v", got.Refusal)
			}
		})
	}
}

func refusalCode(r *wire.Reply) wire.Code {
	if r.Refusal == nil {
		return ""
	}
	return r.Refusal.Code
}

// TestARefusalTellsNothingOfWhatExists asks under the default policy for a taken, a revoked and a free name, in each
// way a free name is refused. Codes and retry times must not differ.
func TestARefusalTellsNothingOfWhatExists(t *testing.T) {
	t.Parallel()
	const revoked, free = "web2.example.net", "web3.example.net"
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	if _, err := f.Daemon().Orders().AllowList.Add(f.Context(),
		operate.AllowOrder{Pattern: "web*.example.net", Expires: time.Hour}, operator); err != nil {
		t.Fatal(err)
	}
	provisioned(f, web1)
	provisioned(f, revoked)
	f.Clock.Advance(2 * time.Hour)
	f.Revoke(revoked)
	same := func(how string, want wire.Code, ask func(name string) *wire.Reply) {
		t.Helper()
		of := ask(free).Refusal
		if of == nil || of.Code != want {
			t.Errorf("%s: a free name is told %+v, want %s", how, of, want)
		}
		for _, name := range []string{web1, revoked} {
			if diff := cmp.Diff(of, ask(name).Refusal); diff != "" {
				t.Errorf("%s: refusals differ (-of a free name +of %s):\n%s", how, name, diff)
			}
		}
	}
	same("as an honest machine does", wire.CodeApprovalPending,
		func(name string) *wire.Reply { return f.Ask(f.Node(name)) })
	same("with what the policy denies", wire.CodeDenied, func(name string) *wire.Reply {
		n := f.Node(name)
		n.CSR = must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
		}, n.Key))(t)
		return f.Ask(n)
	})
	same("by a confirmation", wire.CodeNotIssued, func(name string) *wire.Reply {
		n := f.Node(name)
		return f.Send(n, must(n.Confirm(&wire.Enrolled{Serial: "01"}))(t))
	})
	if _, err := f.Daemon().Orders().Pauses.Begin(f.Context(), "", false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	same("while enrollment is paused", wire.CodePaused, func(name string) *wire.Reply { return f.Ask(f.Node(name)) })
	for name, code := range map[string]wire.Code{web1: wire.CodeIdentityTaken, revoked: wire.CodeIdentityRevoked} {
		if !slices.ContainsFunc(f.Events(), func(e events.Event) bool { return e.Node == name && e.Code == code }) {
			t.Errorf("no event says %s of %s", code, name)
		}
	}
	f.Check()
}

// TestAShortNameIsNoPrefixOfALongOne: node web tries to get at web.example.net.
func TestAShortNameIsNoPrefixOfALongOne(t *testing.T) {
	t.Parallel()
	const large, small = "web.example.net", "web"
	f := testbed.New(t, testbed.Options{})
	owner, ownerGiven := provisioned(f, large)
	n, given := provisioned(f, small)
	before := f.Record(large)

	// By its key and its session.
	if reply := (claimant{f.Node(large), n}).ask(t, f); refusalCode(reply) != wire.CodeIdentityTaken.SentAs() {
		t.Errorf("by the word of %s: %+v", small, reply)
	}
	nc := f.DialFleet(n, given)
	renewal := must(n.Renewal(f.Node(large)))(t)
	renewal.Identity = large
	renewal.Continuity = *must(wire.SignContinuity(n.Key, renewal.ID, large, renewal.CSR))(t)
	if reply, err := simnode.Renew(f.Context(), nc, renewal); err != nil ||
		refusalCode(reply) != wire.CodeRenewSession {
		t.Errorf("a renewal over the session of %s: %+v, %v", small, reply, err)
	}
	var denied *broker.Denied
	if err := f.Daemon().Admits(f.Context(), large, given.Serial); !errors.As(err, &denied) ||
		denied.Code != wire.CodeNotIssued {
		t.Errorf("its certificate as %s: %v", large, err)
	}

	// By its subjects: the provisioners get its events only, and it gets no other node's commands.
	conn, err := f.Daemon().Connect("listener")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	heard, err := conn.SubscribeSync(wire.AllNodeEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 16) // more than there are tries
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	tries := []func() error{
		func() error { return nc.Publish(wire.EventSubject(large, "alive"), nil) },
		func() error { return nc.Publish(wire.RegistrationSubject(large), nil) },
		func() error { _, err := nc.SubscribeSync(wire.CommandSubject(large)); return err },
		func() error { _, err := nc.SubscribeSync("muster.v1.command.>"); return err },
		func() error { _, err := nc.SubscribeSync("_INBOX.>"); return err },
	}
	for i, try := range tries {
		if err := try(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-refused:
		case <-f.Context().Done():
			t.Fatalf("try %d was not refused", i)
		}
	}
	if err := nc.Publish(wire.EventSubject(small, "alive"), nil); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.NextMsgWithContext(f.Context()); err != nil || m.Subject != wire.EventSubject(small, "alive") {
		t.Errorf("heard %+v, %v, want its own event alone", m, err)
	}

	// By its record: the other record stays.
	f.PutRecord(small, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
	f.PutRecord(small, func(r *provisioner.Record) { r.State, r.Current, r.Next = provisioner.StateRetired, nil, nil })
	if diff := cmp.Diff(before, f.Record(large)); diff != "" {
		t.Errorf("the record of %s has changed:\n%s", large, diff)
	}
	if reply := f.AskRenew(owner, ownerGiven, f.Successor(owner)); reply.Enrolled == nil {
		t.Errorf("the owner's renewal: %+v", reply.Refusal)
	}
	f.Check()
}
