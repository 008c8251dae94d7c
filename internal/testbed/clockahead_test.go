package testbed_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
)

// TestABrokerThatBeganByAWrongClock starts the provisioner while the clock is two days
// ahead, and sets it right: nodes of the fleet come in again.
func TestABrokerThatBeganByAWrongClock(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, e := member(t, f, "web1.example.net")
	f.Stop()
	f.Clock.Advance(48 * time.Hour)
	f.Start()
	f.Clock.Advance(-48 * time.Hour)
	f.Eventually("the node is in the fleet", func() bool {
		nc, err := n.DialFleet(f.URL(), e)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// TestAWrongClockTakesNoTrustAway starts a provisioner with two authorities while the
// clock is ahead by more than a certificate's life: live certificates of the former
// authority are over by that clock only, and trust in it stays.
func TestAWrongClockTakesNoTrustAway(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{RolloverCheck: 50 * time.Millisecond})
	n, e := member(t, f, "web1.example.net")
	f.Roll()
	needed := func() int { return strings.Count(f.Log(), "previous certificate authority is still needed") }
	f.Eventually("it is looked whether the authority before is needed", func() bool { return needed() > 0 })
	f.Stop()
	before := needed()
	f.Clock.Advance(60 * 24 * time.Hour)
	f.Start()
	f.WaitAlarm(provisioner.AlarmClockJumped)
	f.Clock.Advance(-60 * 24 * time.Hour)
	f.WaitNoAlarm(provisioner.AlarmClockJumped)
	f.Eventually("it is looked again", func() bool { return needed() > before })
	if strings.Contains(f.Log(), "previous certificate authority is not trusted any more") {
		t.Error("an operator is told to take out an authority of which a live certificate is")
	}
	f.Eventually("the node is in the fleet", func() bool {
		nc, err := n.DialFleet(f.URL(), e)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}
