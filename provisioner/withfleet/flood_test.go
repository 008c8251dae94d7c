package provisioner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// forge returns a token with a wrong signature.
func forge(text string) string {
	at := strings.LastIndex(text, ".") + 1
	return text[:at] + map[bool]string{true: "B", false: "A"}[text[at] == 'A'] + text[at+1:]
}

// checks sets the limit of checked forgeries per second and source.
func checks(perSecond int) func(*daemon.Config) {
	return func(c *daemon.Config) { c.Quotas.VerificationsPerSource = perSecond }
}

// TestForgeriesAreOnABudget spends the budget of a source with forged tokens. Then no more are checked, nodes with
// known tokens are served, and nodes with new tokens are busy until it refills.
func TestForgeriesAreOnABudget(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: checks(5)})
	known := f.Token(nil)
	nc := f.Dial(known)
	forged := f.Node("evil.example.net")
	forged.Token = forge(known)
	f.Clock.Hold() // else the budget refills
	// spend asks 40 times; 20 are checked: four seconds' worth.
	spend := func() (refusals []*wire.Refusal) {
		t.Helper()
		for range 40 {
			r, err := simnode.Enroll(f.Context(), nc, forged.Request())
			if err != nil || r.Refusal == nil {
				t.Fatalf("a forged token: %+v, %v", r, err)
			}
			refusals = append(refusals, r.Refusal)
		}
		return refusals
	}
	codes, waits := map[wire.Code]int{}, map[time.Duration]bool{}
	for _, r := range spend() {
		codes[r.Code]++
		waits[r.Wait()] = true
		if w := r.Wait(); r.Code == wire.CodeBusy && (w < 4*time.Second || w > 12*time.Second) {
			t.Errorf("told to come back in %v, want 4 to 12 seconds", w)
		}
	}
	if codes[wire.CodeTokenInvalid] != 20 || codes[wire.CodeBusy] != 20 {
		t.Errorf("refusals %v, want 20 to be checked and the rest to be busy", codes)
	}
	if len(waits) < 5 {
		t.Errorf("told to come back in %v, all at once", waits)
	}
	n, err := simnode.New("web1.example.net", known)
	if err != nil {
		t.Fatal(err)
	}
	f.Enroll(n)
	fresh := f.Node("fresh.example.net")
	if r, err := simnode.Enroll(f.Context(), nc, fresh.Request()); err != nil || r.Refusal == nil ||
		r.Refusal.Code != wire.CodeBusy {
		t.Errorf("a token not shown before: %+v, %v, want %s", r, err, wire.CodeBusy)
	}
	f.Clock.Advance(5 * time.Second)
	f.Enroll(fresh)
	f.Clock.Advance(time.Minute)
	// The gate has the same budget.
	spend()
	var dials errgroup.Group // some refusals are delayed
	for range 40 {
		for _, token := range []string{forged.Token, f.Token(func(c *jwt.Claims) { c.Issuer = "another" })} {
			dials.Go(func() error { return refusedAt(f, token) })
		}
	}
	if err := dials.Wait(); err != nil {
		t.Errorf("a forged token, or one not shown before: %v: the gate has a budget of its own", err)
	}
	f.Dial(known)
	f.Check()
}

// refusedAt connects with a bad token.
func refusedAt(f *testbed.Fleet, token string) error {
	c, err := simnode.Dial(f.URL(), token)
	switch {
	case err == nil:
		c.Close()
		return errors.New("it connects")
	case !errors.Is(err, nats.ErrAuthorization):
		return err
	}
	return nil
}
