package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// follows has a client follow events, and returns what that ended with, and when,
// once it has seen one.
func follows(t *testing.T, f *testbed.Fleet, c *httpapi.Client, begun time.Time) <-chan error {
	t.Helper()
	seen, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() {
		ended <- c.Events(f.Context(), events.Query{Since: begun}, func(*events.Stored, []byte) error {
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

// TestRemovedOperatorsStopReceivingEvents removes operators that follow events at another provisioner, and lets a token
// expire.
func TestRemovedOperatorsStopReceivingEvents(t *testing.T) {
	t.Parallel()
	f := served(t)
	begun := f.Clock.Now().Add(-time.Hour)
	other := f.Provisioner(nil)
	key, public := newKey(t)
	cause := trust.Cause{By: "root"}
	for _, name := range []string{"ben", "carl"} {
		if _, err := testbed.Orders(other).Operators.Add(f.Context(),
			operate.NewOperator{Name: name, Role: trust.RoleViewer, Public: public}, cause); err != nil {
			t.Fatal(err)
		}
	}
	vera := remote(t, f, certified(t, f, "vera", trust.RoleViewer), "")
	ben, carl := remote(t, f, roots(t, f), signedBy(t, f, key, "ben")), remote(t, f, roots(t, f),
		signedBy(t, f, key, "carl"))
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
		if err := testbed.Orders(other).Operators.Remove(f.Context(), name, cause); err != nil {
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

// TestALimitToSitesEndsOpenStreams gives an operator that follows events a limit to sites, at another provisioner.
func TestALimitToSitesEndsOpenStreams(t *testing.T) {
	t.Parallel()
	f := served(t)
	begun := f.Clock.Now().Add(-time.Hour)
	key, public := newKey(t)
	vera := operate.NewOperator{Name: "vera", Role: trust.RoleViewer, Public: public}
	add := func() {
		t.Helper()
		if _, err := testbed.Orders(f.Provisioner(nil)).Operators.Add(f.Context(), vera,
			trust.Cause{By: "root"}); err != nil {
			t.Fatal(err)
		}
	}
	add()
	f.Enroll(f.Node("web1.example.net"))
	c := remote(t, f, roots(t, f), signedBy(t, f, key, "vera"))
	ended := follows(t, f, c, begun)
	vera.Sites = trust.Sites{"ams1"}
	add()
	if err := <-ended; err == nil {
		t.Error("the stream of all events has ended as if it were complete")
	}
	err := c.Events(f.Context(), events.Query{Since: begun, Once: true}, func(e *events.Stored, _ []byte) error {
		return fmt.Errorf("an event of another site: %s %s", e.Type, e.Read().Node)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTheFirstRequestAfterAChangeIsRefused changes the role of operators at
// another provisioner, gives them another key, and removes them: once this one has
// heard of it, not one request more is answered, on connections that are there.
func TestTheFirstRequestAfterAChangeIsRefused(t *testing.T) {
	t.Parallel()
	f := served(t)
	other := f.Provisioner(nil)
	key, public := newKey(t)
	_, another := newKey(t)
	cause := trust.Cause{By: "root"}
	heard := func(role trust.OperatorRole, change func() error) { // which a listing is
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		list := listed[operate.OperatorInfo](t, f, "/v1/operators")
		if len(list) != 1 || list[0].Role != role {
			t.Fatalf("operators %+v, want anna as %q", list, role)
		}
	}
	add := func(role trust.OperatorRole, public []byte) {
		t.Helper()
		heard(role, func() error {
			_, err := testbed.Orders(other).Operators.Add(f.Context(),
				operate.NewOperator{Name: "anna", Role: role, Public: public}, cause)
			return err
		})
	}
	add(trust.RoleOperator, public)
	anna := remote(t, f, roots(t, f), signedBy(t, f, key, "anna"))
	asks := func(looks, changes int) {
		t.Helper()
		if got := status(t, f, anna, http.MethodPost, "/v1/nodes/web1.example.net/revoke",
			httpapi.Reason{Why: "a test"}); got != changes {
			t.Errorf("a change is answered by %d, want %d", got, changes)
		}
		if got := status(t, f, anna, http.MethodGet, "/v1/self", nil); got != looks {
			t.Errorf("a look is answered by %d, want %d", got, looks)
		}
	}
	asks(http.StatusOK, http.StatusNotFound) // there is no such node
	add(trust.RoleViewer, public)
	asks(http.StatusOK, http.StatusForbidden)
	add(trust.RoleOperator, another)
	asks(http.StatusUnauthorized, http.StatusUnauthorized)
	add(trust.RoleAdmin, public)
	asks(http.StatusOK, http.StatusNotFound)
	heard("", func() error { return testbed.Orders(other).Operators.Remove(f.Context(), "anna", cause) })
	asks(http.StatusUnauthorized, http.StatusUnauthorized)
}
