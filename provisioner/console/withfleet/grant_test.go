package console_test

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
)

// TestAGrantIsShownAsItCounts looks at the page of a machine whose name is given away: by a
// clock that was ahead, by one that is right, and once another key has it.
func TestAGrantIsShownAsItCounts(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	v := signedIn(t, f, "anna", provisioner.RoleViewer)
	const page, ahead = "/nodes/web1.example.net", 20 * 24 * time.Hour
	grant := func() {
		t.Helper()
		if _, err := f.Daemon().Operator().GrantNode(f.Context(), "web1.example.net", provisioner.GrantOrder{}, testbed.Operator()); err != nil {
			t.Fatal(err)
		}
	}
	f.Clock.Advance(ahead)
	grant()
	f.Clock.Advance(-ahead)
	says(t, v.see(page), "<dt>Granted</dt>", "It is of ", "so a clock was ahead: it lets nobody in.</dd>")
	grant()
	says(t, v.see(page), "<dt>Granted</dt>")
	unsaid(t, v.see(page), "a clock was ahead")
	other := f.Node("web1.example.net")
	f.Apply(other, f.Enroll(other))
	unsaid(t, v.see(page), "<dt>Granted</dt>")
	f.Check()
}
