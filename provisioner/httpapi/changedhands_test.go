package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// TestOrdersSpareALaterHolderOfTheName chooses machines from the list, and has names
// change hands before what was ordered reaches them.
func TestOrdersSpareALaterHolderOfTheName(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const retired, granted, renewed = "web1.example.net", "web2.example.net", "web3.example.net"
	for _, name := range []string{retired, granted} {
		n := f.Node(name)
		f.Apply(n, f.Enroll(n))
	}
	same := f.Node(renewed)
	first := f.Enroll(same)
	f.Apply(same, first)
	seen := make(map[string]provisioner.Precondition)
	f.Eventually("all are listed", func() bool {
		var p fleet.Page
		call(t, f, http.MethodGet, "/v1/nodes", nil, &p)
		for _, n := range p.Nodes {
			seen[string(n.Identity)] = provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince}
		}
		return len(p.Nodes) == 3
	})
	f.Clock.Advance(time.Minute)
	change := func(name string) httpapi.Change { return httpapi.Change{Why: "chosen", Precondition: seen[name]} }
	call(t, f, http.MethodPost, "/v1/nodes/"+retired+"/retire", change(retired), nil)
	call(t, f, http.MethodPost, "/v1/nodes/"+retired+"/retire", change(retired), nil) // again: it is done
	if s := f.Record(retired).State; s != provisioner.StateRetired {
		t.Fatalf("who was chosen is %s", s)
	}
	call(t, f, http.MethodPost, "/v1/nodes/"+granted+"/grant", httpapi.NewGrant{}, nil)
	for _, name := range []string{retired, granted} {
		n := f.Node(name)
		f.Apply(n, f.Enroll(n))
	}
	next, e := f.Renew(same, first)
	f.AppliedOverFleet(next, e)
	for _, name := range []string{retired, granted} {
		for _, verb := range []string{"retire", "revoke"} {
			problem := refused(t, f, http.MethodPost, "/v1/nodes/"+name+"/"+verb, change(name))
			if problem.Status != http.StatusConflict || !problem.LeftAlone ||
				!strings.Contains(problem.Detail, "another machine has had the name since") {
				t.Errorf("%s %s: %+v", verb, name, problem)
			}
		}
		if s := f.Record(name).State; s != provisioner.StateProvisioned {
			t.Errorf("another machine has the name %s, and is %s", name, s)
		}
	}
	if problem := refused(t, f, http.MethodPost, "/v1/nodes/"+renewed+"/retire", change(renewed)); !problem.LeftAlone {
		t.Errorf("retire a node that has renewed since: %+v", problem)
	}
	owner := provisioner.Precondition{OwnedSince: seen[renewed].OwnedSince}
	call(t, f, http.MethodPost, "/v1/nodes/"+renewed+"/revoke", httpapi.Change{Why: "chosen", Precondition: owner}, nil)
	call(t, f, http.MethodPost, "/v1/nodes/"+granted+"/retire", httpapi.Change{Why: "whoever has the name"}, nil)
	f.Check()
}
