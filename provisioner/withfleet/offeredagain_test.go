package provisioner_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
)

// registering is a template with what a machine says of itself in it, as the one that
// init writes has.
const registering = "identity = {{ .Identity }}\n{{- with index .Facts \"registration_file\" }}\nregistration_file = {{ . }}\n{{- end }}\n"

// saying is facts that show in the configuration that the template makes.
func saying(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"registration_file":"/tmp/reg%d"}`, n))
}

// renewing returns a fleet with a machine in it, what it is and was given first, and the same
// of its renewal, which it has not confirmed.
func renewing(t *testing.T) (f *testbed.Fleet, n *simnode.Node, first *wire.Enrolled, next *simnode.Node, second *wire.Enrolled) {
	t.Helper()
	f = testbed.New(t, testbed.Options{Template: registering})
	n = f.Node(web1)
	n.Facts = saying(1)
	first = f.Enroll(n)
	f.Apply(n, first)
	next, second = f.Renew(n, first)
	return f, n, first, next, second
}

// TestAYoungOfferIsNotReplacedByTheKeyBefore renews, and has the old key ask again with
// another configuration before the new certificate is confirmed, as a request that is
// recorded or comes late does.
func TestAYoungOfferIsNotReplacedByTheKeyBefore(t *testing.T) {
	t.Parallel()
	f, n, first, next, second := renewing(t)
	nc := f.DialFleet(next, second) // it has switched, and is about to confirm
	n.Facts = saying(2)
	if r := f.Ask(n); r.Refusal == nil || r.Refusal.Code != wire.CodeBusy || r.Refusal.Wait() > offerPace {
		t.Errorf("the key before: %+v, want %s for %v at most", r, wire.CodeBusy, offerPace)
	}
	if !f.Admits(web1, second.Serial) {
		t.Error("the certificate that was offered a moment ago is not live any more")
	}
	n.Facts = saying(1)
	if r := f.Ask(n); r.Enrolled == nil || r.Enrolled.Serial != first.Serial {
		t.Errorf("the key before, with nothing new: %+v, want certificate %s again", r, first.Serial)
	}
	confirmation, err := next.Confirm(second)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := simnode.Apply(f.Context(), nc, confirmation); err != nil || reply.Refusal != nil {
		t.Errorf("confirmed: %+v, %v", reply, err)
	}
	f.Check()
}

// TestAnOldOfferThatIsReplacedIsDropped has the key before ask when the offer after it
// has not been confirmed for long.
func TestAnOldOfferThatIsReplacedIsDropped(t *testing.T) {
	t.Parallel()
	f, n, _, next, second := renewing(t)
	nc := f.DialFleet(next, second)
	f.Clock.Advance(offerPace)
	n.Facts = saying(2)
	f.Apply(n, f.Enroll(n))
	f.Eventually("the connection of the superseded certificate is dropped", func() bool { return !nc.IsConnected() })
	if f.Admits(web1, second.Serial) {
		t.Error("it is admitted")
	}
	f.Check()
}

// TestNobodyKeepsANodeFromRenewing sends again and again, with other facts each time,
// what a machine sent when it enrolled.
func TestNobodyKeepsANodeFromRenewing(t *testing.T) {
	t.Parallel()
	f, n, _, next, second := renewing(t)
	f.AppliedOverFleet(next, second)
	recorded := *n
	for i := range 20 {
		recorded.Facts = saying(i + 2)
		f.Ask(&recorded)
		f.Clock.Advance(offerPace / 2)
		if _, refused := renewOver(t, f, next, f.Successor(next)); refused == nil {
			f.Check()
			return
		}
	}
	t.Errorf("refused for %v: %s", 20*offerPace/2, f.Cause(web1))
}

// TestAOneTimeTokenOutlivesAReconfiguration signs a token for a machine's
// replacement, gives the machine another configuration, and then has the
// replacement come.
func TestAOneTimeTokenOutlivesAReconfiguration(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: registering})
	old := f.Node(web1)
	old.Facts = saying(1)
	f.Apply(old, f.Enroll(old))
	serial := f.Record(web1).Current.Serial
	f.Clock.Advance(time.Minute)
	token := f.Token(testbed.Limited(1, web1))
	f.Clock.Advance(time.Minute)
	old.Facts = saying(2)
	f.Apply(old, f.Enroll(old))
	if now := f.Record(web1).Current.Serial; now != serial {
		t.Fatalf("another certificate: %s, %s before", now, serial)
	}
	if r := f.Ask(node(t, web1, token)); r.Refusal != nil {
		t.Errorf("a token that was signed after the certificate is refused: %s", f.Cause(web1))
	}
}
