package provisioner_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/provisioner/orders"

	"github.com/google/go-cmp/cmp"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
)

// TestAllowListEntriesEnd changes entries at one provisioner and asks another one.
func TestAllowListEntriesEnd(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p, other := f.Daemon().Operator(), f.Provisioner(nil)
	allow := func(pattern string, expires time.Duration, everything bool) error {
		_, err := testbed.Orders(p).AllowList.Add(f.Context(),
			operate.AllowOrder{Pattern: pattern, Expires: expires, Everything: everything}, operator)
		return err
	}
	if err := errors.Join(allow("web*.example.net", time.Hour, false), allow("app1.example.net", time.Hour, false),
		allow("db1.example.net", 0, false)); err != nil {
		t.Fatal(err)
	}
	f.Enroll(f.Node("web1.example.net"))
	if code := codeAt(f, other, f.Node("web3.example.net")); code != "" {
		t.Errorf("a name of the list at another provisioner: %s", code)
	}
	f.Clock.Advance(time.Hour + time.Second)
	if err := testbed.Orders(p).AllowList.Remove(f.Context(), "db1.example.net", operator); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web2.example.net", "app1.example.net", "db1.example.net"} {
		if code := codeAt(f, other, f.Node(name)); code != wire.CodeApprovalPending {
			t.Errorf("%s after its entry ended: %s", name, code)
		}
	}
	if err := testbed.Orders(p).AllowList.Remove(f.Context(), "db1.example.net", operator); !errors.Is(err,
		operate.ErrNotAllowed) {
		t.Errorf("removed twice: %v", err)
	}
	for _, pattern := range []string{"*", "**.*", "*.*.*", "?*"} {
		if err := allow(pattern, 0, false); !errors.Is(err, operate.ErrEverything) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	f.Check()
}

// TestAnImportReplacesWhatItsSourceHad: repeating an import changes nothing, and the next import completes an
// interrupted one.
func TestAnImportReplacesWhatItsSourceHad(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.Allow("own.example.net")
	list := f.Daemon().Orders().AllowList
	imports := func(source string, dryRun bool, entries ...operate.Listed) *operate.Imported {
		t.Helper()
		done, err := list.Import(f.Context(), operate.List{Source: source, Entries: entries}, dryRun, operator)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	compare := func(what string, got, want *operate.Imported) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	end := f.Clock.Now().Add(time.Hour)
	racks := []operate.Listed{
		{Pattern: "web*.example.net", Comment: "rack 4"},
		{Pattern: "db1.example.net", ExpiresAt: end},
		{Pattern: "own.example.net"},
		{Pattern: "gone.example.net", ExpiresAt: f.Clock.Now().Add(-time.Hour)},
	}
	first := &operate.Imported{
		Added: []wire.Pattern{"web*.example.net", "db1.example.net"},
		Kept:  []wire.Pattern{"own.example.net"},
	}
	compare("a dry run", imports("racks", true, racks...), first)
	if n := len(must(list.List(f.Context()))(t)); n != 1 {
		t.Errorf("%d entries after a dry run", n)
	}
	compare("the first import", imports("racks", false, racks...), first)
	compare("the same again", imports("racks", false, racks...),
		&operate.Imported{Unchanged: 2, Kept: []wire.Pattern{"own.example.net"}})
	f.Enroll(f.Node("db1.example.net"))
	f.Enroll(f.Node(web1))
	if r := f.Record(web1); r.Decision.Allowed != "web*.example.net" {
		t.Errorf("decision = %+v", r.Decision)
	}
	compare("another source", imports("lab", false, operate.Listed{Pattern: "db1.example.net"},
		operate.Listed{Pattern: "lab1.example.net"}),
		&operate.Imported{Added: []wire.Pattern{"lab1.example.net"}, Kept: []wire.Pattern{"db1.example.net"}})

	next := []operate.Listed{{Pattern: "db1.example.net", ExpiresAt: end.Add(time.Hour)}, {Pattern: "db2.example.net"}}
	compare("a dry run of another list", imports("racks", true, next...), &operate.Imported{
		Added:   []wire.Pattern{"db2.example.net"},
		Changed: []wire.Pattern{"db1.example.net"},
		Ended:   []wire.Pattern{"web*.example.net"},
	})
	f.Faults.EntryWrites.Inject(testbed.Lost)
	if _, err := list.Import(f.Context(), operate.List{Source: "racks", Entries: next}, false,
		operator); !errors.Is(err, testbed.ErrInjected) {
		t.Errorf("import with a write that fails: %v", err)
	}
	imports("racks", false, next...)
	compare("finished", imports("racks", false, next...), &operate.Imported{Unchanged: 2})
	if code := f.Refused(f.Node("web2.example.net")); code != wire.CodeApprovalPending {
		t.Errorf("an entry that the list lacks: %s", code)
	}
	var left []string
	for _, a := range must(list.List(f.Context()))(t) {
		left = append(left, fmt.Sprint(a.Pattern, " ", a.Source))
	}
	want := []string{"db1.example.net racks", "db2.example.net racks", "lab1.example.net lab", "own.example.net "}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for name, wrong := range map[string]operate.List{
		"no source":  {Entries: next},
		"every name": {Source: "racks", Entries: []operate.Listed{{Pattern: "**.*"}}},
		"twice":      {Source: "racks", Entries: append(next, next...)},
		"no pattern": {Source: "racks", Entries: []operate.Listed{{Pattern: "a..b"}}},
	} {
		var order *provisioner.OrderError
		if _, err := list.Import(f.Context(), wrong, false, operator); !errors.As(err, &order) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Check()
}

// TestUnreadableEntriesAdmitNothing has orders of another version. They raise an alarm until they are replaced.
func TestUnreadableEntriesAdmitNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	conn, err := f.Daemon().Connect("another version")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	names := 0
	ask := func(what string, want wire.Code) { // under another name each time
		t.Helper()
		f.Eventually(what, func() bool {
			names++
			return codeAt(f, p, f.Node(fmt.Sprintf("db%d.example.net", names))) == want
		})
	}
	if _, err := testbed.Orders(p).AllowList.Add(f.Context(),
		operate.AllowOrder{Pattern: "db*.example.net"}, operator); err != nil {
		t.Fatal(err)
	}
	ask("the list lets its names in", "")
	waits := f.Node(web1)
	if code := codeAt(f, p, waits); code != wire.CodeApprovalPending {
		t.Fatalf("before: %q", code)
	}
	for _, key := range []string{"allow." + orders.AllowanceID("db*.example.net"),
		"verdict." + wire.Identity(web1).SubjectToken() + "." + keyHash(t, waits)} {
		if err := conn.Publish("muster.entry."+key, []byte(`{"schema":99,"verdict":"approve"}`)); err != nil {
			t.Fatal(err)
		}
	}
	ask("an entry that cannot be read lets in nothing", wire.CodeApprovalPending)
	f.Eventually("a verdict that cannot be read rejects its key",
		func() bool { return codeAt(f, p, waits) == wire.CodeRejected })
	f.WaitAlarm(events.AlarmEntryUnread)
	if _, err := testbed.Orders(p).AllowList.Add(f.Context(),
		operate.AllowOrder{Pattern: "db*.example.net"}, operator); err != nil {
		t.Fatal(err)
	}
	ask("until it is written anew", "")
	if err := conn.Publish("muster.entry.pause.all", []byte(`{"schema":99,"resumed":true}`)); err != nil {
		t.Fatal(err)
	}
	ask("a pause that cannot be read is one", wire.CodePaused)
	if err := testbed.Orders(p).Pauses.End(f.Context(), "", operator); err != nil {
		t.Fatal(err)
	}
	ask("until it is over", "")
}

// TestAnAllowListForEveryNameIsAnAlarm: log at every start, alarm, and events of both ends.
func TestAnAllowListForEveryNameIsAnAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.WaitNoAlarm(events.AlarmAllowsAll)
	const all = "the allow-list admits every name"
	said := func() int { return strings.Count(f.Log(), all) }
	allow := func(pattern string, expires time.Duration) {
		t.Helper()
		if _, err := f.Daemon().Orders().AllowList.Add(f.Context(),
			operate.AllowOrder{Pattern: pattern, Expires: expires, Everything: true}, operator); err != nil {
			t.Fatal(err)
		}
	}
	allow("*", 0)
	f.WaitAlarm(events.AlarmAllowsAll)
	before := said()
	f.Stop()
	f.Start()
	f.WaitAlarm(events.AlarmAllowsAll)
	if before == 0 || said() <= before {
		t.Errorf("the log said so %d times, and %d after a restart", before, said())
	}
	if err := f.Daemon().Orders().AllowList.Remove(f.Context(), "*", operator); err != nil {
		t.Fatal(err)
	}
	f.WaitNoAlarm(events.AlarmAllowsAll)
	allow("**.*", time.Hour)
	f.WaitAlarm(events.AlarmAllowsAll)
	f.Clock.Advance(time.Hour + time.Second)
	f.WaitNoAlarm(events.AlarmAllowsAll)
	var ups, downs int
	for _, e := range f.Events() {
		if e.Code == events.AlarmAllowsAll && e.Type == events.AlarmRaised {
			ups++
		}
		if e.Code == events.AlarmAllowsAll && e.Type == events.AlarmCleared {
			downs++
		}
	}
	if ups < 3 || downs < 2 {
		t.Errorf("%d events say that it began and %d that it ended, want 3 and 2 or more", ups, downs)
	}
	f.Check()
}
