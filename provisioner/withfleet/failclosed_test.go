package provisioner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
)

func on(d *testdisk.Disk) func(*daemon.Config) {
	return func(c *daemon.Config) { c.DataDir = d.Dir }
}

// raisedAndCleared are the events of one alarm.
var raisedAndCleared = []events.Type{events.AlarmRaised, events.AlarmCleared}

// alarmEvents returns the emitted events about one alarm.
func alarmEvents(f *testbed.Fleet, code wire.Code) []events.Type {
	var types []events.Type
	for _, e := range f.Events() {
		if e.Code == code && (e.Type == events.AlarmRaised || e.Type == events.AlarmCleared) {
			types = append(types, e.Type)
		}
	}
	return types
}

// storedEvents returns the types of an alarm's events in the store, in order.
func storedEvents(t *testing.T, f *testbed.Fleet, code wire.Code) []events.Type {
	t.Helper()
	var types []events.Type
	for _, m := range f.Stored() {
		if !strings.HasPrefix(m.Subject, "muster.event.alarm.") {
			continue
		}
		var e struct {
			Type events.Type  `json:"type"`
			Data events.Event `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		if e.Data.Code == code {
			types = append(types, e.Type)
		}
	}
	return types
}

// reportedOnce expects one raise and one clear of an alarm, emitted and stored.
func reportedOnce(t *testing.T, f *testbed.Fleet, code wire.Code) {
	t.Helper()
	if diff := cmp.Diff(raisedAndCleared, alarmEvents(f, code)); diff != "" {
		t.Errorf("events of %s: -want +got\n%s", code, diff)
	}
	f.Eventually("the store has the alarm's end",
		func() bool { return len(storedEvents(t, f, code)) >= len(raisedAndCleared) })
	if diff := cmp.Diff(raisedAndCleared, storedEvents(t, f, code)); diff != "" {
		t.Errorf("events of %s in the store: -want +got\n%s", code, diff)
	}
}

// TestADiskThatIsNearlyFull refuses new nodes only, until there is space.
func TestADiskThatIsNearlyFull(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	d := testdisk.New(t, 512<<20)
	f := testbed.New(t, testbed.Options{Edit: on(d)}) // a twentieth: 25 MiB
	known := f.Node("web1.example.net")
	e := f.Enroll(known)
	d.Fill(20 << 20)
	if cause := f.WaitAlarm(wire.CodeStorageLow); !strings.Contains(cause, d.Dir) ||
		!strings.Contains(cause, "store.low_water") {
		t.Errorf("alarm says %q, want the directory and the setting", cause)
	}
	stranger := f.Node("web2.example.net")
	if code := f.Refused(stranger); code != wire.CodeStorageLow {
		t.Errorf("a new identity = %s, want %s", code, wire.CodeStorageLow)
	}
	if again := f.Enroll(known); again.Serial != e.Serial {
		t.Errorf("replay = %s, want %s", again.Serial, e.Serial)
	}
	if r := f.Apply(known, e); r.Applied == nil {
		t.Errorf("applied = %v, want it accepted", r.Refusal)
	}
	f.Clock.Advance(31 * 24 * time.Hour)
	late := *known
	late.Token = f.Token(nil)
	if again := f.Enroll(&late); again.Serial == e.Serial {
		t.Error("a node on record got no new certificate for its expired one")
	}
	d.Free()
	f.WaitNoAlarm(wire.CodeStorageLow)
	stranger.Token = late.Token
	f.Enroll(stranger)
	reportedOnce(t, f, wire.CodeStorageLow)
	f.Check()
}

// TestADiskThatHangs: an alarm is raised, and a stop ends once the disk answers.
func TestADiskThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	d := testdisk.New(t, 512<<20)
	f := testbed.New(t, testbed.Options{Edit: on(d)})
	n := f.Node("web1.example.net")
	thaw := d.Freeze()
	ctx, cancel := context.WithTimeout(f.Context(), time.Second)
	defer cancel()
	// From here on the server keeps its stream locked.
	if r, err := simnode.Enroll(ctx, f.Dial(n.Token), n.Request()); err == nil {
		t.Errorf("enroll = %v, want no answer", r)
	}
	if cause := f.WaitAlarm(wire.CodeStoreUnavailable); !strings.Contains(cause, "answer") {
		t.Errorf("alarm says %q, want that the disk does not answer", cause)
	}
	operator := httpapi.NewClient(filepath.Join(d.Dir, httpapi.SocketName))
	if err := operator.Do(f.Context(), "GET", "/metrics", nil, nil); err != nil {
		t.Errorf("metrics: %v", err)
	}
	if err := operator.Do(f.Context(), "GET", "/readyz", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "store") {
		t.Errorf("ready: %v, want the store", err)
	}
	thaw()
	f.WaitNoAlarm(wire.CodeStoreUnavailable)
	e := f.Enroll(n)
	thaw = d.Freeze()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.Stop()
	}()
	f.Eventually("the provisioner stops",
		func() bool { return strings.Contains(f.Log(), `"msg":"provisioner stopping`) })
	thaw()
	<-stopped
	f.Start()
	if again := f.Enroll(n); again.Serial != e.Serial {
		t.Errorf("replay = %s, want %s", again.Serial, e.Serial)
	}
	f.Check()
}

// TestAClockThatGoesBack: nothing is issued a year in the past, also after a restart.
func TestAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	f := testbed.New(t, testbed.Options{})
	f.Stop()
	f.Clock.Advance(2 * year) // so that the authority is older than that
	f.Start()
	acceptClock(t, f)
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Eventually("the mark is in the store", func() bool {
		for _, m := range f.Stored() {
			if m.Subject == "muster.entry.clock.mark" {
				return true
			}
		}
		return false
	})
	f.Clock.Advance(-year)
	stranger, again := f.Node("web2.example.net"), *n // tokens of the past, which the gate accepts
	again.Token = f.Token(nil)
	for what := range map[string]bool{"running": true, "restarted": true} {
		if code := f.Refused(stranger); code != wire.CodeClockBehind {
			t.Errorf("%s: a new identity = %s, want %s", what, code, wire.CodeClockBehind)
		}
		if code := f.Refused(&again); code != wire.CodeClockBehind {
			t.Errorf("%s: a replay = %s, want %s", what, code, wire.CodeClockBehind)
		}
		if r := f.Ask(stranger); r.Refusal.Code != wire.CodeUnavailable {
			t.Errorf("%s: told %s, want %s", what, r.Refusal.Code, wire.CodeUnavailable)
		}
		f.WaitAlarm(wire.CodeClockBehind)
		f.Stop()
		f.Start()
	}
	f.Clock.Advance(year)
	f.WaitNoAlarm(wire.CodeClockBehind)
	n.Token = f.Token(nil)
	if got := f.Enroll(n); got.Serial != e.Serial {
		t.Errorf("replay = %s, want %s", got.Serial, e.Serial)
	}
	stranger.Token = n.Token
	f.Enroll(stranger)
	f.Check()
}

func acceptClock(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	if err := f.Daemon().Orders().Process.AcceptClock(f.Context(),
		trust.Cause{By: "ops", Why: "the clock is right"}); err != nil {
		t.Fatal(err)
	}
}

// TestTheGateOfAClockThatIsBehind admits no connection, least of all with an expired certificate; connections that
// exist stay. The good CRL is not replaced.
func TestTheGateOfAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	f := testbed.New(t, testbed.Options{})
	_, old := inFleet(t, f, "web1.example.net")
	f.Clock.Advance(year)
	acceptClock(t, f)
	n, e := inFleet(t, f, "web2.example.net")
	nc := f.DialFleet(n, e)
	defer nc.Close()
	crl := newestCRL(f)
	f.Eventually("a CRL of this year", func() bool {
		crl = newestCRL(f)
		return f.Clock.Now().Sub(crl.ThisUpdate) < time.Hour
	})
	f.Clock.Advance(-year)
	for _, what := range []string{"running", "restarted"} {
		for id, serial := range map[wire.Identity]string{"web1.example.net": old.Serial, "web2.example.net": e.Serial} {
			err := f.Daemon().Admits(f.Context(), id, serial)
			if d := (*broker.Denied)(nil); !errors.As(err, &d) || d.Code != wire.CodeClockBehind {
				t.Errorf("%s: Admits %s = %v, want %s", what, id, err, wire.CodeClockBehind)
			}
		}
		f.Revoke("web1.example.net") // a CRL is due, but not by this clock
		f.Eventually("it is noticed", func() bool { return strings.Contains(f.Log(), "CRL not renewed") })
		if got := newestCRL(f); got != nil && got.Number != crl.Number {
			t.Errorf("%s: CRL %d of %v, want %d as it was", what, got.Number, got.ThisUpdate, crl.Number)
		}
		if what == "running" {
			if err := nc.Flush(); err != nil {
				t.Errorf("the connection that was there is gone: %v", err)
			}
		}
		f.Stop()
		f.Start()
	}
	f.Clock.Advance(year)
	f.Eventually("a CRL by the right clock",
		func() bool { c := newestCRL(f); return c != nil && c.Number > crl.Number })
	if !f.Admits("web2.example.net", e.Serial) {
		t.Error("not admitted although the clock is right again")
	}
}

func TestAnAuthorityAtItsEnd(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	const life = 20 * 365 * 24 * time.Hour
	f.Clock.Advance(life)
	f.WaitAlarm(wire.CodeAuthorityExpired)
	stranger := f.Node("web2.example.net")
	if code := f.Refused(stranger); code != wire.CodeAuthorityExpired {
		t.Errorf("enroll = %s, want %s", code, wire.CodeAuthorityExpired)
	}
	n.Token = stranger.Token
	f.Apply(n, e) // no valid certificate can sign the answer, so the node asks again
	if r := f.Record("web1.example.net"); r.State != provisioner.StateProvisioned {
		t.Errorf("the node is %s, want its confirmation recorded", r.State)
	}
	f.Clock.Advance(-life)
	f.WaitNoAlarm(wire.CodeAuthorityExpired)
	reportedOnce(t, f, wire.CodeAuthorityExpired)
}

// TestAPolicyThatFails: one alarm for all refusals, until the policy is mended.
func TestAPolicyThatFails(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"undefined":  "allow if input.facts.role == \"db\"",
		"wrong type": "allow := input.facts.role",
		"erring":     "allow := to_number(input.identity) == 1",
		"panicking":  "allow := muster.test.panic(input.identity)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Policy: "package muster.enroll\n\n" + rules + "\n"})
			n := f.Node("web1.example.net")
			n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
			for range 3 {
				if code := f.Refused(n); code != wire.CodePolicyFailed {
					t.Errorf("enroll = %s, want %s", code, wire.CodePolicyFailed)
				}
			}
			f.WaitAlarm(wire.CodePolicyFailed)
			if err := os.WriteFile(filepath.Join(f.Dir, "policy/policy.rego"),
				[]byte("package muster.enroll\n\nallow := true\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			f.Eventually("the mended policy lets it in", func() bool { return f.Ask(n).Enrolled != nil })
			f.WaitNoAlarm(wire.CodePolicyFailed)
			reportedOnce(t, f, wire.CodePolicyFailed)
			f.Check()
		})
	}
}

func TestAStartOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	d := testdisk.New(t, 512<<20)
	f := testbed.New(t, testbed.Options{Edit: on(d)})
	f.Enroll(f.Node("web1.example.net"))
	f.Stop()
	d.Fail()
	p, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), daemon.Options{},
		func(c *daemon.Config) { on(d)(c); c.Broker.Listen = "127.0.0.1:0" })
	if err == nil {
		err = p.Run(f.Context(), nil)
	}
	if err == nil || f.Context().Err() != nil || !strings.Contains(err.Error(), "read-only file system") ||
		!strings.Contains(err.Error(), d.Dir) {
		t.Errorf("start = %v, want an error at once with the directory", err)
	}
	d.Remount()
	f.Start()
	f.Check()
}

// newestCRL returns nil if no CRL is served.
func newestCRL(f *testbed.Fleet) *trust.CRL {
	if all := f.Daemon().CRLs(); len(all) > 0 {
		return all[0]
	}
	return nil
}
