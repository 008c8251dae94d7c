package httpapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// explains waits until the explanation of a node has all the texts, and returns
// it in one piece.
func explains(t *testing.T, f *testbed.Fleet, identity string, texts ...string) string {
	t.Helper()
	var last string
	f.Eventually(identity+" is explained with "+strings.Join(texts, ", "), func() bool {
		var e fleet.Explanation
		if client(f).Do(f.Context(), http.MethodGet, "/v1/nodes/"+identity+"/explain", nil, &e) != nil {
			return false // its events are not there yet
		}
		last = textOf(&e)
		return !slices.ContainsFunc(texts, func(want string) bool { return !strings.Contains(last, want) })
	})
	return last
}

// textOf is an explanation as a terminal shows it.
func textOf(e *fleet.Explanation) string {
	var lines []string
	for _, f := range e.Findings {
		lines = append(lines, f.Code+": "+f.Text)
		for _, a := range f.Do {
			lines = append(lines, "- "+a.Command()+": "+a.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// TestVerdictsAreExplained follows keys that were approved, let in, rejected,
// forgotten, and approved for nothing.
func TestVerdictsAreExplained(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	decide := func(identity, verb string, v httpapi.NewVerdict) (a orders.Answer) {
		t.Helper()
		f.Eventually(identity+" waits", func() bool {
			var p httpapi.Pending
			call(t, f, http.MethodGet, "/v1/waiting?prefix="+identity, nil, &p)
			return len(p.Waiting) > 0 || v.Key != ""
		})
		call(t, f, http.MethodPost, "/v1/nodes/"+identity+"/"+verb, v, &a)
		return a
	}
	web := f.Node("web1.example.net")
	f.Refused(web)
	key := decide("web1.example.net", "approve", httpapi.NewVerdict{Why: "rack 4"}).KeyHash
	explains(t, f, "web1.example.net", "The key "+key+" was approved at ",
		`("rack 4"): it enrolls at its next request, until `)
	f.Apply(web, f.Enroll(web))
	said := explains(t, f, "web1.example.net", "The node's key enrolled at ", " with the approval of ", `("rack 4")`)
	if strings.Contains(said, "next try") {
		t.Errorf("a spent approval is explained as one that is not:\n%s", said)
	}
	var p fleet.History
	call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
	if i := slices.Index(kinds(&p), fleet.Decided); i < 0 || p.Items[i].By == "" {
		t.Errorf("the decision does not say who approved it: %+v", p.Items)
	}

	db := f.Node("db1.example.net")
	f.Refused(db)
	key = decide("db1.example.net", "reject", httpapi.NewVerdict{Why: "not ours"}).KeyHash
	said = explains(t, f, "db1.example.net", "The key "+key+" was rejected at ", `("not ours"), and cannot enroll`,
		"muster node forget db1.example.net --fingerprint "+key)
	if !strings.Contains(said, "The node has never enrolled") {
		t.Errorf("a machine that was rejected: %s", said)
	}
	decide("db1.example.net", "forget", httpapi.NewVerdict{Key: httpapi.Limit(key)})
	f.Eventually("what was said no longer counts",
		func() bool { return !strings.Contains(explains(t, f, "db1.example.net"), key) })

	late := f.Node("late.example.net")
	f.Refused(late)
	decide("late.example.net", "approve", httpapi.NewVerdict{TTL: time.Minute})
	explains(t, f, "late.example.net", "enrolls at its next request")
	f.Clock.Advance(2 * time.Minute)
	explains(t, f, "late.example.net", "but did not ask before the approval expired",
		"approve the key again, once it waits")
}

// TestAnEndedCertificateIsExplained has a machine that comes back and is refused.
func TestAnEndedCertificateIsExplained(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := true

deny contains "broken" if input.facts.broken

certificate := {"ttl": "1h"}
`})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	f.Clock.Advance(2 * time.Hour)
	explains(t, f, "web1.example.net", "enrolls again with its own key when it comes back")
	n.Facts = testbed.Facts(t, map[string]any{"broken": true})
	f.Refused(n)
	explains(t, f, "web1.example.net", "asks since then, and is refused", "denied")
}

// TestCommandsAreExplained gives a real agent commands.
func TestCommandsAreExplained(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	order := func(verb wire.Verb, why string) {
		t.Helper()
		f.Eventually("the node takes commands", func() bool {
			_, err := f.Daemon().Orders().Nodes.Command(f.Context(), "web1.example.net",
				operate.CommandOrder{Verb: verb}, trust.Cause{By: "ann", Why: why})
			return err == nil
		})
	}
	order(wire.VerbReprovision, "rack 4")
	explains(t, f, "web1.example.net", "ann commanded the node at ", ` to enroll again ("rack 4"): done at `)
	var p fleet.History
	call(t, f, http.MethodGet, "/v1/nodes/web1.example.net/history", nil, &p)
	if all := kinds(&p); slices.Index(all, fleet.Confirmed) < slices.Index(all, fleet.Commanded) ||
		!slices.Contains(all, fleet.Commanded) {
		t.Errorf("history %v, want a command and then the same confirmed again", all)
	}
	f.WaitProvisioned(a)
	order(wire.VerbShutdown, "moved")
	said := explains(t, f, "web1.example.net", ` to stop its agent ("moved"): done at `, "The agent stopped at ",
		"start the agent on the machine")
	if strings.Contains(said, "rack 4") {
		t.Errorf("a command before the last one is explained:\n%s", said)
	}
}

// TestExplainedApprovalsMatchEnrollment follows keys that were approved and whose names
// were taken away or given away before they came: what is said is what they then get.
func TestExplainedApprovalsMatchEnrollment(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	// refused waits until an approval that would have no effect is refused with the text.
	refused := func(n *simnode.Node, text string) {
		t.Helper()
		f.Eventually(n.Identity+" is not approved: "+text, func() bool {
			_, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named(wire.Identity(n.Identity), keyOf(t, n)),
				0, testbed.Operator())
			return errors.Is(err, trust.ErrState) && strings.Contains(err.Error(), text)
		})
	}
	approve := func(n *simnode.Node) {
		t.Helper()
		f.Eventually(n.Identity+" can be approved", func() bool {
			_, err := testbed.Orders(p).Keys.Approve(f.Context(), operate.Named(wire.Identity(n.Identity), keyOf(t, n)),
				0, testbed.Operator())
			return err == nil
		})
	}
	node := func(identity string) *simnode.Node {
		t.Helper()
		n := f.Node(identity)
		if code := f.Refused(n); code != wire.CodeApprovalPending {
			t.Fatalf("%s: %s", identity, code)
		}
		return n
	}
	// is waits until the last key of a node is explained with the text, and then has it ask.
	is := func(n *simnode.Node, text string, code wire.Code) {
		t.Helper()
		said := explains(t, f, n.Identity, "The key "+keyOf(t, n)+" was approved at ", text)
		if strings.Contains(said, "at its next request") != (code == "") {
			t.Errorf("%s: what it gets is %q, and it is said:\n%s", n.Identity, code, said)
		}
		if code == "" {
			f.Enroll(n)
		} else if got := f.Refused(n); got != code {
			t.Errorf("%s gets %s, want %s after what was said:\n%s", n.Identity, got, code, said)
		}
	}
	letIn := func(n *simnode.Node) { // by other means, so that the approval is not spent
		t.Helper()
		pattern := n.Identity[:len(n.Identity)-1] + "*"
		if _, err := testbed.Orders(p).AllowList.Add(f.Context(),
			operate.AllowOrder{Pattern: pattern}, testbed.Operator()); err != nil {
			t.Fatal(err)
		}
		f.Apply(n, f.Enroll(n))
		if err := testbed.Orders(p).AllowList.Remove(f.Context(), wire.Pattern(pattern),
			testbed.Operator()); err != nil {
			t.Fatal(err)
		}
	}

	retired := node("retired.example.net")
	approve(retired)
	explains(t, f, "retired.example.net", "it enrolls at its next request")
	letIn(retired)
	f.Retire("retired.example.net")
	is(retired, "for a node that has lost the name since: the approval is void", wire.CodeApprovalPending)
	approve(retired)
	is(retired, "it enrolls at its next request, until ", "")

	other := node("revoked.example.net")
	first := f.Node("revoked.example.net")
	approve(other)
	letIn(first)
	explains(t, f, "revoked.example.net", "but the name belongs to another key: the approval is void",
		"muster node grant revoked.example.net --fingerprint "+keyOf(t, other))
	f.Revoke("revoked.example.net")
	is(other, "but the name or the key is revoked: the approval is void", wire.CodeIdentityRevoked)
	refused(other, "the name is revoked; run `muster node retire revoked.example.net` first")

	other = node("taken.example.net")
	approve(other)
	letIn(f.Node("taken.example.net"))
	refused(other, "`muster node grant taken.example.net --fingerprint "+keyOf(t, other)+"`")
	is(other, "but the name belongs to another key: the approval is void", wire.CodeIdentityTaken)
	if _, err := testbed.Orders(p).Keys.Reject(f.Context(), operate.Named("taken.example.net", keyOf(t, other)),
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	refused(other, "the key stays rejected until `muster node forget taken.example.net --fingerprint "+keyOf(t,
		other)+"`")
	if code := f.Refused(other); code != wire.CodeRejected {
		t.Errorf("a rejected key whose approval was refused gets %s", code)
	}

	paused := node("paused.example.net")
	approve(paused)
	if _, err := testbed.Orders(p).Pauses.Begin(f.Context(), "", false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	explains(t, f, "paused.example.net", "it enrolls at its next request after the pause ends, until ")
	if got := f.Refused(paused); got != wire.CodePaused {
		t.Errorf("while enrollment is paused: %s", got)
	}
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	is(paused, "it enrolls at its next request, until ", "")
	f.Check()
}

// TestExplainedGrantsMatchEnrollment gives a name away, and then takes it from the machine
// that the grant was given against.
func TestExplainedGrantsMatchEnrollment(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	grant := func(key string) {
		t.Helper()
		call(t, f, http.MethodPost, "/v1/nodes/web1.example.net/grant", httpapi.NewGrant{KeyHash: httpapi.Limit(key)}, nil)
	}
	over := func() bool {
		t.Helper()
		var report fleet.Report
		call(t, f, http.MethodGet, "/v1/nodes/web1.example.net", nil, &report)
		return report.GrantOver
	}
	const stands, lost = " can take the name over, once, until ", "is void"
	grant("")
	explains(t, f, "web1.example.net", "Another key"+stands)
	if over() {
		t.Error("a grant that stands is over on record")
	}
	f.Clock.Advance(time.Minute)
	f.Retire("web1.example.net")
	if said := explains(t, f, "web1.example.net", lost); strings.Contains(said, stands) || !over() {
		t.Errorf("over on record: %t, and it is said:\n%s", over(), said)
	}
	f.Enroll(f.Node("web1.example.net"))
	if said := explains(t, f, "web1.example.net", lost); strings.Contains(said, stands) || !over() {
		t.Errorf("over on record: %t, and it is said:\n%s", over(), said)
	}
	other := f.Node("web1.example.net")
	if code := f.Refused(other); code != wire.CodeIdentityTaken {
		t.Errorf("another key gets %s", code)
	}
	grant(keyOf(t, other))
	explains(t, f, "web1.example.net", "The key "+keyOf(t, other)+stands)
	f.Revoke("web1.example.net")
	if said := explains(t, f, "web1.example.net", lost); strings.Contains(said, stands) {
		t.Errorf("of a revoked node it is said:\n%s", said)
	}
	if code := f.Refused(f.Node("web1.example.net")); code != wire.CodeIdentityRevoked {
		t.Errorf("another key gets %s", code)
	}
}

// keyOf returns the hash of a node's key.
func keyOf(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
