package testbed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/broker"
)

// behind is by how much a clock goes back: more than it may.
const behind = -10 * time.Minute

// ofYesterday makes a token one that is valid by a clock that is behind, too.
func ofYesterday(c *jwt.Claims) { c.IssuedAt, c.NotBefore = time.Time{}, time.Now().Add(-24*time.Hour) }

// TestAProvisionerWhoseClockIsBehindWithdraws sets back the clock of one of two provisioners: the other one serves all
// nodes. When the clock is right again both serve.
func TestAProvisionerWhoseClockIsBehindWithdraws(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	second := f.AddProvisioner("second.fleet.test")
	member := f.Node("member.example.net")
	given := f.Enroll(member)
	f.Apply(member, given)
	a := &askers{t: t, f: f, url: f.URL(), token: f.Token(ofYesterday)}

	second.Clock.Advance(behind)
	a.allEnrolledBy("")
	for range 10 { // and the servers ask only the one that can tell
		dialFleet(t, f.Servers()[0], member, given).Close()
	}
	f.Clock.Advance(behind) // for both of them
	second.Clock.Advance(-2 * behind)
	a.allEnrolledBy("second.fleet.test")
	second.Stop()
	f.Clock.Advance(-behind)
	a.allEnrolledBy("")
	f.Check()
}

// TestAProvisionerThatCannotReadQuestionsWithdraws gives one of two provisioners another xkey
// than the servers have: as soon as it has got a question, the other one is asked about all nodes.
func TestAProvisionerThatCannotReadQuestionsWithdraws(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	xkey := filepath.Join(t.TempDir(), "xkey")
	if err := os.WriteFile(xkey, []byte(string(keys.XKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := f.AddProvisioner("second.fleet.test", testbed.With(func(c *daemon.Config) { c.Broker.External.Callout.XKey = xkey }))
	a := &askers{t: t, f: f, url: f.URL(), token: f.Token(nil)}
	f.Eventually("the second one withdraws", func() bool {
		a.ask() // it may be asked about this one, which waits in vain
		return strings.Contains(f.Log(), "requests left to other provisioners")
	})
	a.allEnrolledBy("")
	if !strings.Contains(f.Log(), "another xkey than broker.callout.xkey") {
		t.Error("the log does not say why")
	}
	second.Stop()
	a.allEnrolledBy("")
	f.Check()
}

// TestASiteIsServedWhileItsOwnCannot sets back the clock of a site's only provisioner:
// its nodes are served by the hub's, although NATS prefers the site's.
func TestASiteIsServedWhileItsOwnCannot(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisioner("provisioner.ams1.fleet.test", testbed.At("ams1"))
	a := &askers{t: t, f: f, url: f.Site("ams1").URL(), token: f.Token(func(c *jwt.Claims) {
		ofYesterday(c)
		if err := c.SetLimits(jwt.Limits{Site: "ams1"}); err != nil {
			t.Fatal(err)
		}
	})}
	a.allEnrolledBy("provisioner.ams1.fleet.test")
	local.Clock.Advance(behind)
	a.allEnrolledBy("")
	local.Clock.Advance(-behind)
	a.allEnrolledBy("provisioner.ams1.fleet.test")
	f.Check()
}

// TestAProvisionerStartsWithdrawn starts a provisioner whose clock is behind beside one that
// serves: it never answers a node, and is ready all the same.
func TestAProvisionerStartsWithdrawn(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	a := &askers{t: t, f: f, url: f.URL(), token: f.Token(ofYesterday)}
	// The other clock is the real one, by which the servers' certificates are valid.
	f.Clock.Advance(-behind)
	f.Eventually("the fleet's clock is on record", func() bool { return onRecord(f) })
	f.AddProvisioner("second.fleet.test", testbed.Behind(behind))
	for range inARow {
		told := a.ask()
		stood := strings.HasPrefix(f.Cause(a.last), string(wire.CodeRevocationsUnknown)) // the first one, for a moment
		if told != "enrolled" && !stood {
			t.Fatalf("a node is told %q, want that the first provisioner serves it", told)
		}
	}
	f.Check()
}

// onRecord puts the fleet's clock on record, as its provisioner does once a minute, and reports
// whether it could.
func onRecord(f *testbed.Fleet) bool {
	s := f.Daemon().Store()
	mark, after, err := s.ClockMark(f.Context())
	if err != nil || mark == nil {
		return false // the provisioner has just begun
	}
	mark.Time = f.Clock.Now()
	_, err = s.PutClockMark(f.Context(), mark, after)
	return err == nil
}

// TestAProvisionerWhoseClockIsAheadWithdraws starts a provisioner whose clock is ten minutes
// ahead beside one that serves: the one that is right goes on, and serves everybody once the other
// one has seen that it is contradicted. When its clock is set right it serves, too.
func TestAProvisionerWhoseClockIsAheadWithdraws(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	a := &askers{t: t, f: f, url: f.URL(), token: f.Token(ofYesterday)}
	// The other clock is the real one, by which the servers' certificates are valid.
	f.Clock.Advance(behind)
	f.Eventually("the fleet's clock is on record", func() bool {
		return f.Daemon().Operator().AcceptClock(f.Context(), testbed.Operator()) == nil && onRecord(f)
	})
	second := f.AddProvisioner("second.fleet.test", testbed.Behind(-behind))
	served := func(name string) bool { return a.ask() == "enrolled" && f.EnrolledBy(a.last) == name }
	f.Eventually("all nodes are enrolled by the one whose clock is right", func() bool {
		onRecord(f) // or the other one was first
		for range inARow {
			if !served("") {
				return false
			}
		}
		return true
	})
	if mark, _, err := f.Daemon().Store().ClockMark(f.Context()); err != nil || mark.Time.Sub(f.Clock.Now()) > -behind/2 {
		t.Errorf("the clock that is ahead is on record: %+v, %v", mark, err)
	}
	second.Clock.Advance(behind)
	f.Eventually("it serves again", func() bool { return served("second.fleet.test") })
	f.Clock.Advance(-behind)
	f.Check()
}

// inARow is how many nodes must meet the same, one after the other: with two that take
// turns by chance, that happens once in a thousand million.
const inARow = 30

// askers are nodes that were never seen and ask once each.
type askers struct {
	t          *testing.T
	f          *testbed.Fleet
	url, token string
	asked      int
	last       string // identity
}

// ask has one more node connect and enroll, and returns "enrolled", the code of the
// refusal, or what went wrong on the way.
func (a *askers) ask() string {
	a.t.Helper()
	a.asked++
	n, err := simnode.New(fmt.Sprintf("node%d.example.net", a.asked), a.token)
	if err != nil {
		a.t.Fatal(err)
	}
	a.last = n.Identity
	nc, err := simnode.Dial(a.url, n.Token)
	if err != nil {
		return err.Error()
	}
	defer nc.Close()
	r, err := simnode.Enroll(a.f.Context(), nc, n.Request())
	switch {
	case err != nil:
		return err.Error()
	case r.Refusal != nil:
		return string(r.Refusal.Code)
	}
	return "enrolled"
}

// allEnrolledBy waits until nodes are enrolled at their first request, by the provisioner
// of this name, many in a row.
func (a *askers) allEnrolledBy(name string) {
	a.t.Helper()
	a.inARow(fmt.Sprintf("all nodes are enrolled by %q at once", name), func() bool {
		return a.ask() == "enrolled" && a.f.EnrolledBy(a.last) == name
	})
}

func (a *askers) inARow(what string, one func() bool) {
	a.t.Helper()
	a.f.Eventually(what, func() bool {
		for range inARow {
			if !one() {
				return false
			}
		}
		return true
	})
}
