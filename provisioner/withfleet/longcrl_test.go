package provisioner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// TestALongCRLIsInTheLog retires so much that the store does not get the list. Every
// provisioner has the same one all the same, whoever signed it, and after a restart.
func TestALongCRLIsInTheLog(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	ps := []*provisioner.Provisioner{f.Daemon().Operator(), another(t, f, nil), another(t, f, nil)}
	same := func() bool {
		return string(ps[1].CRL().DER) == string(ps[0].CRL().DER) && string(ps[2].CRL().DER) == string(ps[0].CRL().DER)
	}
	end := f.Clock.Now().Add(30 * 24 * time.Hour)
	f.Faults.CRLs(testbed.LostAnswer, testbed.Lost)
	for i := range 4 {
		serial := f.RetireMany(fmt.Sprintf("gone%d.example.net", i), 1000, end)
		f.Eventually("it is on the list", func() bool { return f.OnCRL(serial) })
	}
	f.Eventually("all have the same", same)
	f.Check()
	list, last := crls(t, f), ps[0].CRL()
	stored := list[len(list)-1]
	if len(last.DER) < 150_000 || stored.Number != last.Number || len(stored.DER) != 0 || len(stored.Signature) == 0 {
		t.Errorf("CRL %d of %d bytes; the store has %d with %d", last.Number, len(last.DER), stored.Number, len(stored.DER))
	}

	f.Stop()
	f.Start()
	if got := f.Daemon().CRL(); got.Number != last.Number || string(got.DER) != string(last.DER) {
		t.Errorf("CRL %d of %d bytes after a restart, want %d as it was", got.Number, len(got.DER), last.Number)
	}
	path := filepath.Join(f.Dir, "data/crl.pem")
	f.Eventually("the file has all of it", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == string(ca.EncodeCRL(f.Daemon().CRL().DER))
	})

	// What has ended falls off, and so short a list is the store's again.
	f.Clock.Advance(end.Sub(f.Clock.Now()) + time.Minute)
	for range 2 {
		number := f.Daemon().CRL().Number
		f.Clock.Advance(13 * time.Hour)
		f.Eventually("another one", func() bool { return f.Daemon().CRL().Number > number })
	}
	list = crls(t, f)
	if n := len(f.Daemon().CRL().DER); n > 1000 || string(list[len(list)-1].DER) != string(f.Daemon().CRL().DER) {
		t.Errorf("%d bytes after the end of all", n)
	}
	f.Check()
}

// TestACRLThatTheLogDoesNotMake finds one in the store that lists something else, as
// another version of muster may sign it, or one from before the log was made anew: the
// one before is handed out until there is another.
func TestACRLThatTheLogDoesNotMake(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := inFleet(t, f, web1)
	f.Revoke(web1)
	f.Eventually("it is listed", func() bool { return f.OnCRL(e.Serial) })
	before := f.Daemon().CRL()
	for range 2 {
		store := f.Daemon().Store()
		newest, revision, err := store.CRL(f.Context(), before.Issuer, 0)
		if err != nil {
			t.Fatal(err)
		}
		strange := *newest
		strange.Schema, strange.Number, strange.DER, strange.Signature = provisioner.CRLSchemaUnlisted, newest.Number+1, nil, []byte("another's")
		if _, err := store.PutCRL(f.Context(), &strange, revision); err != nil {
			t.Fatal(err)
		}
		f.Eventually("it is followed", func() bool { return f.Daemon().CRL().Number > strange.Number })
		if !f.OnCRL(e.Serial) {
			t.Error("the certificate fell off")
		}
		f.Stop()
		f.Start()
	}
	if !strings.Contains(f.Log(), "CRL cannot be made from the revocations") {
		t.Error("the log does not say so")
	}
	f.Check()
}

// TestACRLThatIsTooLong revokes more than any list has room for. Nodes need none: they are
// served on, also by a provisioner that starts then, and who is paged hears of it.
func TestACRLThatIsTooLong(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{MaxCRL: 100_000, Edit: func(c *daemon.Config) { c.CRL.Validity = 10 * time.Hour }})
	end := f.Clock.Now().Add(30 * 24 * time.Hour)
	for i := range 3 {
		f.RetireMany(fmt.Sprintf("gone%d.example.net", i), 1000, end)
	}
	if cause := f.WaitAlarm(provisioner.AlarmCRLTooLong); !strings.Contains(cause, "limit 100000") {
		t.Errorf("the alarm says %q, not the limit", cause)
	}
	number := f.Daemon().CRL().Number
	node, _ := inFleet(t, f, web1)

	f.Stop()
	f.Clock.Advance(11 * time.Hour) // so that the newest one has lapsed
	f.Start()
	f.WaitAlarm(provisioner.AlarmCRLTooLong)
	if c := f.Daemon().CRL(); c == nil || c.Number != number {
		t.Errorf("after the restart there is %v, want CRL %d still", c, number)
	}
	if r := f.Ask(node); r.Enrolled == nil {
		t.Errorf("a node that was there: %+v", r.Refusal)
	}
	inFleet(t, f, "web2.example.net")

	f.Clock.Advance(end.Sub(f.Clock.Now()) + time.Minute)
	f.WaitNoAlarm(provisioner.AlarmCRLTooLong)
	f.Eventually("there is one again", func() bool { return f.Daemon().CRL().Number > number })
	f.Check()
}
