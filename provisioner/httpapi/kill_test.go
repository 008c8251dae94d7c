package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/server"
)

// scene is an operator before a provisioner that is killed.
type scene struct {
	*victim
	n  int         // of names that were given out
	in []*admitted // who is to stay
}

// admitted is a machine with what it was given.
type admitted struct {
	*simnode.Node
	was *wire.Enrolled
}

// name returns a name that nobody has yet.
func (s *scene) name(prefix string) string {
	s.n++
	return fmt.Sprintf("%s%d.example.net", prefix, s.n)
}

// post asks for a change, once.
func (s *scene) post(path string, in any) func() error {
	return func() error { return client(s.f).Do(s.f.Context(), http.MethodPost, path, in, nil) }
}

// must asks for it, and has to get it.
func (s *scene) must(what string, do func() error) {
	s.t.Helper()
	if err := do(); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// asked is under which code a machine is refused, empty if it gets in.
func (s *scene) asked(n *simnode.Node) wire.Code {
	s.t.Helper()
	if r := s.f.Ask(n); r.Refusal != nil {
		return r.Refusal.Code
	}
	return ""
}

// want reports a machine that is refused otherwise.
func (s *scene) want(what string, n *simnode.Node, want wire.Code) {
	s.t.Helper()
	if got := s.asked(n); got != want {
		s.t.Errorf("%s: %s is told %q, want %q", what, n.Identity, got, want)
	}
}

// waiting returns a machine that waits and is listed.
func (s *scene) waiting(prefix string) *simnode.Node {
	s.t.Helper()
	n := s.f.Node(s.name(prefix))
	s.listed(n)
	return n
}

// listed has a machine ask and waits until it is listed.
func (s *scene) listed(n *simnode.Node) {
	s.t.Helper()
	s.want("before", n, wire.CodeApprovalPending)
	s.f.Eventually("it is listed", func() bool { return s.lists(n) })
}

func (s *scene) lists(n *simnode.Node) bool {
	var p httpapi.Pending
	call(s.t, s.f, http.MethodGet, "/v1/waiting", nil, &p)
	return slices.ContainsFunc(p.Waiting, func(w *provisioner.Waiter) bool { return string(w.Identity) == n.Identity })
}

// enrolled sees to it that a machine gets in, and is given the same when it asks
// again.
func (s *scene) enrolled(what string, n *simnode.Node) *admitted {
	s.t.Helper()
	a := &admitted{Node: n}
	for range 2 {
		r := s.f.Ask(n)
		if r.Enrolled == nil {
			s.t.Fatalf("%s: %s is refused: %s", what, n.Identity, r.Refusal.Code)
		}
		if a.was != nil && a.was.Serial != r.Enrolled.Serial {
			s.t.Errorf("%s: %s gets another certificate", what, n.Identity)
		}
		a.was = r.Enrolled
	}
	return a
}

// stays is enrolled for a machine that is still there when all is over.
func (s *scene) stays(what string, n *simnode.Node) {
	s.t.Helper()
	s.in = append(s.in, s.enrolled(what, n))
}

// over has the provisioner run in this process again, where everybody confirms
// what they have, and checks all that must hold.
func (s *scene) over() {
	s.t.Helper()
	s.back()
	for _, a := range s.in {
		if r := s.f.Apply(a.Node, a.was); r.Applied == nil {
			s.t.Errorf("%s: confirmation: %+v", a.Identity, r.Refusal)
		}
	}
	s.f.Check()
}

// TestKilledWhileOperatorsDecide kills the provisioner and its broker with SIGKILL
// before and after each write of what operators decide about machines that wait.
// What was on its disk is in force when it is back; asked again, it does what was
// asked, once.
func TestKilledWhileOperatorsDecide(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	s := &scene{victim: victimOf(t, f)}
	why := httpapi.NewVerdict{Why: "ticket 17"}

	for _, where := range []string{"before PutAnswer", "after PutAnswer"} {
		n := s.waiting("said")
		approve := s.post("/v1/nodes/"+n.Identity+"/approve", why)
		s.dies(where, approve)
		if where == "before PutAnswer" {
			s.want(where, n, wire.CodeApprovalPending)
			s.must("approve again", approve)
		}
		s.stays(where, n)
		s.want(where+": another key", f.Node(n.Identity), wire.CodeIdentityTaken.ToldAs())
	}
	for _, where := range []string{"before Put", "after Put"} { // of the record that spends it
		n := s.waiting("used")
		s.must("approve", s.post("/v1/nodes/"+n.Identity+"/approve", why))
		s.dies(where, func() error { return s.unheard(n) })
		s.enrolled(where, n)
		s.must("retire", s.post("/v1/nodes/"+n.Identity+"/retire", httpapi.Reason{Why: "over"}))
		s.want(where+": an approval that was spent", n, wire.CodeApprovalPending)
	}
	for _, where := range []string{"before PutAnswer", "after PutAnswer", "after DropWaiter"} {
		n := s.waiting("bad")
		reject := s.post("/v1/nodes/"+n.Identity+"/reject", why)
		s.dies(where, reject)
		if where == "before PutAnswer" {
			s.want(where, n, wire.CodeApprovalPending)
		} else {
			s.want(where, n, wire.CodeDenied)
		}
		s.must("reject again", reject)
		s.want(where+", again", n, wire.CodeDenied)
		if s.lists(n) {
			t.Errorf("%s: a rejected machine is listed", where)
		}
		forget := s.post("/v1/nodes/"+n.Identity+"/forget", why)
		s.dies(strings.Replace(where, "DropWaiter", "PutAnswer", 1), forget)
		if where == "before PutAnswer" {
			s.want(where, n, wire.CodeDenied)
			s.must("forget again", forget)
		}
		s.want(where+", forgotten", n, wire.CodeApprovalPending)
	}
	for _, where := range []string{"after PutAnswer", "before DropWaiter", "after DropWaiter"} {
		n := s.waiting("lost")
		s.must("approve", s.post("/v1/nodes/"+n.Identity+"/approve", why))
		forget := s.post("/v1/nodes/"+n.Identity+"/forget", why)
		s.dies(where, forget)
		if listed := s.lists(n); listed != (where != "after DropWaiter") {
			t.Errorf("%s: listed: %v", where, listed)
		}
		if where != "after DropWaiter" {
			s.must("forget again", forget)
		}
		if s.lists(n) {
			t.Errorf("%s: a forgotten machine is listed", where)
		}
		s.listed(n) // what had been approved is not any more
	}
	s.over()
}

// unheard has a machine ask a provisioner that dies of it.
func (s *scene) unheard(n *simnode.Node) error {
	nc := s.f.Dial(n.Token)
	defer nc.Close()
	ctx, cancel := context.WithTimeout(s.f.Context(), 5*time.Second)
	defer cancel()
	r, err := simnode.Enroll(ctx, nc, n.Request())
	if err == nil && r.Enrolled == nil {
		err = fmt.Errorf("refused: %s", r.Refusal.Code)
	}
	return err
}

// TestKilledWhileNamesAreAllowed does so with the allow-list and with one-time
// tokens: as many get in as were let in.
func TestKilledWhileNamesAreAllowed(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(0, 0)})
	s := &scene{victim: victimOf(t, f)}
	for i, where := range []string{"before PutAllowance", "after PutAllowance"} {
		machine := func(n int) *simnode.Node { return f.Node(fmt.Sprintf("db%d.rack%d.example.net", n, i)) }
		pattern := fmt.Sprintf("db*.rack%d.example.net", i)
		add := s.post("/v1/allow", httpapi.NewAllowance{Pattern: pattern, Uses: 2, Why: "a rack"})
		remove := s.post("/v1/allow/remove", httpapi.OldAllowance{Pattern: pattern, Why: "done"})
		first, second, third := machine(1), machine(2), machine(3)
		s.dies(where, add)
		if early := s.asked(first); (early == "") != (i == 1) {
			t.Errorf("%s: told %q", where, early)
		}
		s.must("allow again", add)
		s.stays(where, first)
		s.dies(where, func() error { return s.unheard(second) }) // its use is an entry, too
		s.stays(where, second)
		s.want(where, third, wire.CodeApprovalPending)
		s.must("allow more", s.post("/v1/allow", httpapi.NewAllowance{Pattern: pattern, Uses: 3, Why: "a larger rack"}))
		s.dies(where, remove) // the journal has it, also before
		s.want(where+", removed", third, wire.CodeApprovalPending)
	}
	// What is new is in the journal once it is in force, and what the journal has alone keeps out.
	for i, where := range []string{"before AppendAllowance", "after AppendAllowance"} {
		machine := func(n int) *simnode.Node { return f.Node(fmt.Sprintf("web%d.row%d.example.net", n, i)) }
		pattern := fmt.Sprintf("web*.row%d.example.net", i)
		add := s.post("/v1/allow", httpapi.NewAllowance{Pattern: pattern, Why: "a row"})
		remove := s.post("/v1/allow/remove", httpapi.OldAllowance{Pattern: pattern, Why: "done"})
		s.dies(where, add)
		s.enrolled(where, machine(1))
		s.must("allow again", add)
		s.enrolled(where, machine(2))
		s.dies(where, remove)
		if i == 0 {
			s.enrolled(where+" of the removal", machine(3))
			s.must("remove again", remove)
		}
		s.want(where+", removed", machine(4), wire.CodeApprovalPending)
	}
	for _, where := range []string{"before NoteToken", "after NoteToken"} {
		name := s.name("once")
		text := f.Token(func(c *jwt.Claims) {
			testbed.Limited(1, wire.Pattern(name))(c)
			c.ExpiresAt = f.Clock.Now().Add(time.Hour)
		})
		issue := s.post("/v1/tokens/issued", httpapi.IssuedToken{TokenText: httpapi.TokenText{Token: wire.Secret(text)}, Why: "a machine"})
		s.dies(where, issue)
		s.must("issue again", issue)
		n, other := f.Node(name), f.Node(name)
		n.Token, other.Token = text, text
		s.dies("after AppendClaims", func() error { return s.unheard(n) })
		s.enrolled(where, n)
		s.must("retire", s.post("/v1/nodes/"+name+"/retire", httpapi.Reason{Why: "over"}))
		s.want(where+": a token that was used", other, wire.CodeTokenUsedUp)
		var tokens []httpapi.Token
		call(t, f, http.MethodGet, "/v1/tokens", nil, &tokens)
		listed := 0
		for _, token := range tokens {
			if token.ID == f.TokenID(text) {
				listed++
			}
		}
		if listed != 1 {
			t.Errorf("%s: the token is listed %d times", where, listed)
		}
	}
	s.over()
}

// TestKilledWhileOperatorsChange does so with operators: who was to be removed is
// out as soon as the journal has it, and who was to be added is in at once or not
// at all, and after asking again.
func TestKilledWhileOperatorsChange(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	s := &scene{victim: victimOf(t, f)}
	_, public := newKey(t)
	role := func(name string) (role provisioner.OperatorRole) {
		t.Helper()
		var list []provisioner.OperatorInfo
		call(t, f, http.MethodGet, "/v1/operators", nil, &list)
		for _, o := range list {
			if o.Name == name && !o.Removed {
				role = o.Role
			}
		}
		return role
	}
	is := func(where, name string, want provisioner.OperatorRole) {
		t.Helper()
		if got := role(name); got != want {
			t.Errorf("%s: %s is %q, want %q", where, name, got, want)
		}
	}
	for i, where := range []string{"before AppendOperator", "after AppendOperator", "before PutOperator", "after PutOperator"} {
		name := fmt.Sprintf("anna%d", i)
		add := func(role provisioner.OperatorRole) func() error {
			return s.post("/v1/operators", httpapi.AddOperator{NewOperator: provisioner.NewOperator{Name: name, Role: role, Public: public}, Why: "is new"})
		}
		remove := s.post("/v1/operators/"+name+"/remove", httpapi.Reason{Why: "has left"})
		s.dies(where, add(provisioner.RoleAdmin))
		if where == "before PutOperator" {
			is(where+" of being added", name, "") // in no hands yet
		} else { // the journal gets who is new once the store has them
			is(where+" of being added", name, provisioner.RoleAdmin)
		}
		s.must("add again", add(provisioner.RoleAdmin))
		is(where+", again", name, provisioner.RoleAdmin)
		s.dies(where, add(provisioner.RoleViewer))
		if i == 0 {
			is(where+" of another role", name, provisioner.RoleAdmin)
			s.must("change again", add(provisioner.RoleViewer))
		}
		is(where+" of another role, again", name, provisioner.RoleViewer)
		s.dies(where, remove)
		if i == 0 {
			is(where+" of being removed", name, provisioner.RoleViewer)
			s.must("remove again", remove)
		}
		is(where+" of being removed, again", name, "")
		s.must("remove once more", remove)
	}
	s.over()
}

// TestKilledWhileANodeIsReconfigured kills the provisioner after a node has taken
// the order to fetch its configuration, before and after each write of that: the
// node ends with the new one, confirmed, and the certificate that it had.
func TestKilledWhileANodeIsReconfigured(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	policy := func(generation int) string {
		return fmt.Sprintf("package muster.enroll\n\ndefault allow := true\n\nconfiguration := {\"generation\": \"%d\"}\n", generation)
	}
	f := testbed.New(t, testbed.Options{Policy: policy(0)})
	a := f.Agent("web1.example.net", f.Token(nil), func(c *server.Config) {
		testbed.Watchful(c)
		c.RequestTimeout = time.Second
	})
	f.WaitProvisioned(a)
	s := &scene{victim: victimOf(t, f)}
	report := func() *provisioner.Record {
		t.Helper()
		var r fleet.Report
		call(t, f, http.MethodGet, "/v1/nodes/"+a.Identity, nil, &r)
		return r.Record
	}
	first := report().Current
	for i, where := range []string{"before Put 1", "after Put 1", "before Put 2", "after Put 2"} {
		before := report().Current
		f.Write("policy/policy.rego", policy(i+1))
		s.must("reload", s.post("/v1/policy/reload", httpapi.Reason{Why: "another generation"}))
		s.dies(where, func() error {
			var err error
			f.Eventually("the node is there and takes the order", func() bool {
				err = client(f).Do(f.Context(), http.MethodPost, "/v1/nodes/"+a.Identity+"/reconfigure", httpapi.NodeCommand{Why: where}, nil)
				return err == nil || !strings.Contains(err.Error(), provisioner.ErrNodeAway.Error())
			})
			return err
		})
		f.Eventually(where+": the new configuration is on record, confirmed", func() bool {
			r := report()
			return r.State == provisioner.StateProvisioned && r.Next == nil && r.Current.Digest != before.Digest
		})
		if now := report().Current; now.Serial != first.Serial || now.KeyHash != first.KeyHash {
			t.Errorf("%s: certificate %s, want %s as before", where, now.Serial, first.Serial)
		}
	}
	s.over()
	f.WaitProvisioned(a)
}
