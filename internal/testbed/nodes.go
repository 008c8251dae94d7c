package testbed

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// Dial connects with this token and closes when the test ends.
func (f *Fleet) Dial(token string) *nats.Conn {
	f.t.Helper()
	nc, err := simnode.Dial(f.URL(), token)
	if err != nil {
		f.t.Fatalf("connect: %v", err)
	}
	f.t.Cleanup(nc.Close)
	return nc
}

// Ask sends a node's enroll request over a new connection. It asks again, as nodes do, after a refusal as in
// [Fleet.RefusedAsStale].
func (f *Fleet) Ask(n *simnode.Node) (r *wire.Reply) {
	f.t.Helper()
	f.Eventually("revocations seen", func() bool {
		nc := f.Dial(n.Token)
		defer nc.Close()
		var err error
		if r, err = simnode.Enroll(f.Context(), nc, n.Request()); err != nil {
			f.t.Fatalf("enroll %s: %v", n.Identity, err)
		}
		return !f.RefusedAsStale(n, r)
	})
	return r
}

// RefusedAsStale reports whether a node was refused only because the provisioner's view of revocations was too old on
// a stalled machine.
func (f *Fleet) RefusedAsStale(n *simnode.Node, r *wire.Reply) bool {
	if r.Refusal == nil || r.Refusal.Code != wire.CodeRevocationsUnknown.SentAs() {
		return false
	}
	cause := f.Cause(n.Identity)
	return strings.HasPrefix(cause, string(wire.CodeRevocationsUnknown)+":") &&
		!strings.Contains(cause, ErrInjected.Error())
}

// Enroll enrolls a node and fails the test if it is refused.
func (f *Fleet) Enroll(n *simnode.Node) *wire.Enrolled {
	f.t.Helper()
	r := f.Ask(n)
	if r.Refusal != nil {
		f.t.Fatalf("enroll %s: refused: %s: %s", n.Identity, r.Refusal.Code, f.Cause(n.Identity))
	}
	return r.Enrolled
}

// Refused sends a node's enroll request and returns the code of its refusal. It fails the test if the node is not
// refused.
func (f *Fleet) Refused(n *simnode.Node) wire.Code {
	f.t.Helper()
	before := len(f.Events())
	r := f.Ask(n)
	if r.Refusal == nil {
		f.t.Fatalf("enroll %s: not refused", n.Identity)
	}
	for _, e := range slices.Backward(f.Events()[before:]) { // the last, since nodes may ask several times
		if e.Type == events.AlarmRaised { // its node is the provisioner, whose name the test may ask for
			continue
		}
		if e.Code != "" && e.Node == n.Identity || e.Node == "" && e.Code == r.Refusal.Code {
			if !toldAs(e.Code, r.Refusal.Code) {
				f.t.Errorf("refusal %s was sent as %s, want %s", e.Code, r.Refusal.Code, e.Code.SentAs())
			}
			return e.Code
		}
	}
	for _, e := range slices.Backward(f.Events()[:before]) { // few repeated refusals have an event
		waits := e.Code.Waits() || ofAnother(e.Code)
		if e.Node == n.Identity && waits && toldAs(e.Code, r.Refusal.Code) {
			return e.Code
		}
	}
	f.t.Fatalf("refusal of %s with %s has no event", n.Identity, r.Refusal.Code)
	return ""
}

// toldAs reports whether a node may get the code told for the refusal c: its public code, or the code that conceals
// that the name exists.
func toldAs(c, told wire.Code) bool {
	return told == c.SentAs() || ofAnother(c) && told == wire.CodeApprovalPending
}

func ofAnother(c wire.Code) bool {
	return c == wire.CodeIdentityTaken || c == wire.CodeIdentityRevoked
}

// Apply confirms the node's certificate and configuration, and returns the reply.
func (f *Fleet) Apply(n *simnode.Node, e *wire.Enrolled) *wire.Reply {
	f.t.Helper()
	a, err := n.Confirm(e)
	must(f.t, err)
	return f.Send(n, a)
}

// Send sends a confirmation and returns the reply.
func (f *Fleet) Send(n *simnode.Node, a *wire.Applied) *wire.Reply {
	f.t.Helper()
	nc := f.Dial(n.Token)
	defer nc.Close()
	r, err := simnode.Apply(f.Context(), nc, a)
	if err != nil {
		f.t.Fatalf("applied %s: %v", n.Identity, err)
	}
	return r
}
