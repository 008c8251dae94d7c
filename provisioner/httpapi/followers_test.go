package httpapi_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// follows has a client follow events, and returns what that ended with, and when,
// once it has seen one.
func follows(t *testing.T, f *testbed.Fleet, c *httpapi.Client, begun time.Time) <-chan error {
	t.Helper()
	seen, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		ended <- c.Events(f.Context(), provisioner.EventQuery{Since: begun}, func(*provisioner.StoredEvent, []byte) error {
			seen <- struct{}{}
			return nil
		})
	}()
	select {
	case <-seen:
	case err := <-ended:
		t.Fatalf("follows events: %v", err)
	}
	return ended
}

// TestWhoMayNoLongerLookIsCutOff removes operators who follow events, at another
// provisioner, and lets the time of one's token end.
func TestWhoMayNoLongerLookIsCutOff(t *testing.T) {
	t.Parallel()
	f := served(t)
	begun := f.Clock.Now().Add(-time.Hour)
	other, err := f.Daemon().Provisioner(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, public := newKey(t)
	cause := provisioner.Cause{By: "root"}
	for _, name := range []string{"ben", "carl"} {
		if _, err := other.AddOperator(f.Context(), provisioner.NewOperator{Name: name, Role: provisioner.RoleViewer, Public: public}, cause); err != nil {
			t.Fatal(err)
		}
	}
	vera := remote(t, f, certified(t, f, "vera", provisioner.RoleViewer), "")
	ben, carl := remote(t, f, roots(t, f), signedBy(t, f, key, "ben")), remote(t, f, roots(t, f), signedBy(t, f, key, "carl"))
	byVera, byBen, byCarl := follows(t, f, vera, begun), follows(t, f, ben, begun), follows(t, f, carl, begun)
	socket := follows(t, f, client(f), begun)
	cutOff := func(name string, ended <-chan error) {
		t.Helper()
		var p *httpapi.Problem
		if err := <-ended; !errors.As(err, &p) || p.Status != http.StatusUnauthorized {
			t.Errorf("%s is cut off by %v, want a problem of status 401", name, err)
		}
	}
	for _, name := range []string{"vera", "ben"} {
		if err := other.RemoveOperator(f.Context(), name, cause); err != nil {
			t.Fatal(err)
		}
	}
	cutOff("vera", byVera)
	cutOff("ben", byBen)
	select {
	case err := <-byCarl:
		t.Errorf("who was not removed: %v", err)
	default:
	}
	f.Clock.Advance(2 * time.Hour)
	cutOff("carl", byCarl)
	select {
	case err := <-socket:
		t.Errorf("who follows at the socket: %v", err)
	default:
	}
}
