package server_test

import (
	"testing"

	"muster/server"
)

// TestANetworkThatComesAndGoesIsAFewLines has the connection be cut over and over: the
// log says so ever more seldom, and how often it was.
func TestANetworkThatComesAndGoesIsAFewLines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	way := newRoad(t, f.url())
	f.pushes("brokers", way.Addr().String())
	a := f.run(f.node("web1.example.net"))
	for n := 1; n <= 9; n++ {
		a.await(server.EventConnected, n)
		way.cut()
	}
	a.await(server.EventConnected, 10)
	for _, losses := range []string{"losses=1 ", "losses=2 ", "losses=4 ", "losses=8 "} {
		if f.countLog("connection to the fleet lost", losses) != 1 {
			t.Errorf("the log does not have %q once", losses)
		}
	}
	// The first connection, and one after each loss that was said.
	if lost, connected := f.countLog("connection to the fleet lost"), f.countLog("connected to the fleet"); lost != 4 || connected != 5 {
		t.Errorf("9 losses are %d lines, and connections %d, want 4 and 5:\n%s", lost, connected, f.log.String())
	}
}

// TestALossThatLastsIsSaid has the broker go away twice in the same way, among losses of
// which nothing is said: a fleet that stays away is told all the same.
func TestALossThatLastsIsSaid(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	way := newRoad(t, f.url())
	f.pushes("brokers", way.Addr().String())
	a := f.run(f.node("web1.example.net"))
	for n := 1; n <= 4; n++ {
		a.await(server.EventConnected, n)
		way.cut()
	}
	failed := 0
	for n := 5; n <= 6; n++ {
		a.await(server.EventConnected, n)
		before := f.countLog("fleet not reached")
		f.stop()
		failed++
		a.await(server.EventFailed, failed)
		for f.countLog("fleet not reached") == before {
			failed++
			a.await(server.EventFailed, failed) // in vain if it is never said
			if failed > 200 {
				t.Fatalf("nobody is told that the fleet is away:\n%s", f.log.String())
			}
		}
		f.start()
	}
	a.await(server.EventConnected, 7)
}
