package testbed_test

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner/trust"
)

// behind is further than a clock may be wrong.
const behind = -10 * time.Minute

// ofYesterday makes a token valid by a clock that is behind.
func ofYesterday(c *jwt.Claims) { c.IssuedAt, c.NotBefore = time.Time{}, time.Now().Add(-24*time.Hour) }

// The clock of a site's only provisioner is wrong: the hub's serves its nodes, although NATS prefers the site's.
func TestTheHubServesASiteWithAWrongClock(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisioner("provisioner.ams1.fleet.test", atSite(f, "ams1"))
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

// onRecord puts the fleet's clock on record, as its provisioner does each minute, and reports whether it could.
func onRecord(f *testbed.Fleet) bool {
	s := f.Daemon().Store()
	e, found := s.Clock.Get(trust.ClockKey)
	if !found {
		return false // the provisioner has just started
	}
	mark := *e.Value
	mark.Time = f.Clock.Now()
	_, err := s.Clock.Put(f.Context(), trust.ClockKey, &mark, e.Revision)
	return err == nil
}

// A provisioner whose clock is ten minutes ahead starts beside a correct one. Once the wrong one sees the
// contradiction, the correct one serves all nodes. With a corrected clock it serves too.
func TestAProvisionerWhoseClockIsAheadWithdraws(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	a := &askers{t: t, f: f, url: f.URL(), token: f.Token(ofYesterday)}
	// The other clock is the real one, by which the servers' certificates are valid.
	f.Clock.Advance(behind)
	f.Eventually("the fleet's clock is on record", func() bool {
		return f.Daemon().Orders().Process.AcceptClock(f.Context(), testbed.Operator()) == nil && onRecord(f)
	})
	second := f.AddProvisioner("second.fleet.test", func(p *testbed.Provisioner, _ *daemon.Config) {
		p.Clock.Advance(-behind)
	})
	served := func(name string) bool { return a.ask() == "enrolled" && f.EnrolledBy(a.last) == name }
	f.Eventually("all nodes are enrolled by the one whose clock is right", func() bool {
		onRecord(f) // or the other provisioner was first
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

// inARow nodes in a row must get the same result; two provisioners in turn reach that by chance once in a thousand
// million.
const inARow = 30

// askers are new nodes that ask once each.
type askers struct {
	t          *testing.T
	f          *testbed.Fleet
	url, token string
	asked      int
	last       string // identity
}

// ask enrolls a further node and returns "enrolled", the refusal's code, or the error.
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

// allEnrolledBy waits until many nodes in a row are enrolled at their first request by this provisioner.
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
