package provisioner_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "muster/internal/eventcheck" // checks what fleets emit
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAllowanceLetsInExactlySoMany has 24 machines ask two provisioners at once
// under an entry for five: five get in, also when they ask again and after a
// restart, and the rest wait.
func TestAllowanceLetsInExactlySoMany(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	if _, err := p.AllowNames(f.Context(), "web*.example.net", 2*time.Hour, 5, false, operator); err != nil {
		t.Fatal(err)
	}
	second := f.Provisioner(nil)
	var nodes []*simnode.Node
	for i := range 24 {
		nodes = append(nodes, f.Node(fmt.Sprintf("web%d.example.net", i)))
	}
	in := make([]atomic.Bool, len(nodes))
	ask := func() {
		var g sync.WaitGroup
		for i, n := range nodes {
			g.Go(func() {
				by := []*provisioner.Provisioner{f.Daemon().Operator(), second}[i%2]
				_, err := by.Enroll(f.Context(), n.Request(), provisioner.Source{Address: "192.0.2.1"})
				if err == nil {
					in[i].Store(true)
				} else if provisioner.CodeOf(err) != wire.CodeApprovalPending && provisioner.CodeOf(err) != wire.CodeBusy {
					t.Errorf("%s: %v", n.Identity, err)
				}
			})
		}
		g.Wait()
	}
	count := func() (n int) {
		for i := range in {
			if in[i].Load() {
				n++
			}
		}
		return n
	}
	f.Eventually("five are in", func() bool { ask(); return count() >= 5 })
	ask()
	if n := count(); n != 5 {
		t.Errorf("%d machines got in by an entry for 5", n)
	}
	list, err := p.Allowances(f.Context())
	if err != nil || len(list) != 1 || len(list[0].UsedBy) != 5 {
		t.Errorf("allow-list = %+v, %v", list, err)
	}
	f.Stop()
	f.Start()
	if code := f.Refused(f.Node("web99.example.net")); code != wire.CodeApprovalPending {
		t.Errorf("a sixth machine after a restart: %s", code)
	}
	f.Check()
}

// TestAnAllowListForEveryNameIsAnAlarm keeps an entry that lets every name in
// visible for as long as it does: in the log of every start, as an alarm and in
// the events of both its ends, whether it is in the store or in the file.
func TestAnAllowListForEveryNameIsAnAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, AllowList: "allow: []\n"})
	f.WaitNoAlarm(provisioner.AlarmAllowsAll)
	const all = "the allow-list admits every name"
	said := func() int { return strings.Count(f.Log(), all) }
	allow := func(pattern string, expires time.Duration, uses int) {
		t.Helper()
		if _, err := f.Daemon().Operator().AllowNames(f.Context(), pattern, expires, uses, true, operator); err != nil {
			t.Fatal(err)
		}
	}
	allow("*", 0, 0)
	f.WaitAlarm(provisioner.AlarmAllowsAll)
	before := said()
	f.Stop()
	f.Start()
	f.WaitAlarm(provisioner.AlarmAllowsAll)
	if before == 0 || said() <= before {
		t.Errorf("the log said so %d times, and %d after a restart", before, said())
	}
	if err := f.Daemon().Operator().DisallowNames(f.Context(), "*", operator); err != nil {
		t.Fatal(err)
	}
	f.WaitNoAlarm(provisioner.AlarmAllowsAll)
	allow("**.*", time.Hour, 0)
	f.WaitAlarm(provisioner.AlarmAllowsAll)
	f.Clock.Advance(time.Hour + time.Second)
	f.WaitNoAlarm(provisioner.AlarmAllowsAll)
	allow("*", 0, 1)
	f.WaitAlarm(provisioner.AlarmAllowsAll)
	f.Enroll(f.Node("web1.example.net")) // uses it up
	f.WaitNoAlarm(provisioner.AlarmAllowsAll)
	f.Write("allow-list.yaml", "allow:\n  - pattern: '*'\n")
	f.WaitAlarm(provisioner.AlarmAllowsAll)
	f.Write("allow-list.yaml", "allow:\n  - pattern: 'web*.example.net'\n")
	f.WaitNoAlarm(provisioner.AlarmAllowsAll)
	var ups, downs int
	for _, e := range f.Events() {
		if e.Code == provisioner.AlarmAllowsAll && e.Type == provisioner.EventAlarmRaised {
			ups++
		}
		if e.Code == provisioner.AlarmAllowsAll && e.Type == provisioner.EventAlarmCleared {
			downs++
		}
	}
	if ups < 5 || downs < 4 {
		t.Errorf("%d events say that it began and %d that it ended, want 5 and 4 or more", ups, downs)
	}
	f.Check()
}
