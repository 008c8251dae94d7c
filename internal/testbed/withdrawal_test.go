package testbed_test

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner/trust"
)

// behind is by how much a clock goes back: more than it may.
const behind = -10 * time.Minute

// ofYesterday makes a token one that is valid by a clock that is behind, too.
func ofYesterday(c *jwt.Claims) { c.IssuedAt, c.NotBefore = time.Time{}, time.Now().Add(-24*time.Hour) }

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

// onRecord puts the fleet's clock on record, as its provisioner does once a minute, and reports
// whether it could.
func onRecord(f *testbed.Fleet) bool {
	s := f.Daemon().Store()
	e, found := s.Clock.Get(trust.ClockKey)
	if !found {
		return false // the provisioner has just begun
	}
	mark := *e.Value
	mark.Time = f.Clock.Now()
	_, err := s.Clock.Put(f.Context(), trust.ClockKey, &mark, e.Revision)
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
		return f.Daemon().Orders().Process.AcceptClock(f.Context(), testbed.Operator()) == nil && onRecord(f)
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
	if mark, found := f.Daemon().Store().Clock.Get(trust.ClockKey); !found ||
		mark.Value.Time.Sub(f.Clock.Now()) > -behind/2 {
		t.Errorf("the clock that is ahead is on record: %+v", mark)
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
