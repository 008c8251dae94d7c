package testbed_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

const twoThirds = 20 * 24 * time.Hour // of the default life

// renewed waits until the agents have a confirmed certificate later than before.
func renewed(f *testbed.Fleet, before map[*testbed.Agent]string) {
	for a, serial := range before {
		f.Eventually(a.Identity+" has renewed ("+f.Cause(a.Identity)+")", func() bool {
			return a.Provisioned() && a.Serial() != serial
		})
	}
}

// Agents renew while they run, each to a new key, without their token and without a gap.
func TestAFleetRenews(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(nil)
	before := map[*testbed.Agent]string{}
	var agents []*testbed.Agent
	for i := range 10 {
		agents = append(agents, f.Agent(fmt.Sprintf("web%d.example.net", i), token, testbed.WatchOften))
	}
	f.WaitProvisioned(agents...)
	keys := map[string]bool{}
	for _, a := range agents {
		before[a] = a.Serial()
		keys[f.Record(a.Identity).Current.KeyHash] = true
	}
	stop := watch(t, f, agents...)
	f.Clock.Advance(twoThirds + twoThirds/8)
	renewed(f, before)
	stop()
	for _, a := range agents {
		r := f.Record(a.Identity)
		if keys[r.Current.KeyHash] || r.Decision.Reason != provisioner.ReasonRenew || len(r.Lineage) != 2 {
			t.Errorf("record = %+v, want a new key by %s", r, provisioner.ReasonRenew)
		}
		if f.Admits(a.Identity, before[a]) {
			t.Errorf("%s: the certificate before is admitted", a.Identity)
		}
	}
	f.Check()
	for _, a := range agents[:3] {
		a.Stop()
		a.Start()
	}
	f.Stop()
	f.Start()
	for _, a := range agents {
		before[a] = a.Serial()
	}
	f.Clock.Advance(twoThirds + twoThirds/8)
	renewed(f, before)
	for _, a := range agents {
		if r := f.Record(a.Identity); len(r.Lineage) != 3 {
			t.Errorf("%s: lineage %v, want three keys", a.Identity, r.Lineage)
		}
	}
	f.Check()
}

// watch checks continuously that the agents' certificates are admitted.
func watch(t *testing.T, f *testbed.Fleet, agents ...*testbed.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	for _, a := range agents {
		g.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					// If the serial differs afterwards, the agent has switched to another certificate meanwhile.
					if serial := a.Serial(); !f.Admits(a.Identity, serial) && serial == a.Serial() {
						t.Errorf("%s is stranded with certificate %s", a.Identity, serial)
						return
					}
				}
			}
		})
	}
	return func() { cancel(); g.Wait() }
}

// An agent's disk is copied: the copy loses its connection when the agent has renewed, and stays out.
func TestASupersededCertificateIsDropped(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil), testbed.WatchOften)
	f.WaitProvisioned(a)
	other := f.Agent("web2.example.net", f.Token(nil), testbed.WatchOften)
	f.WaitProvisioned(other)
	copied, given := a.Copy()
	clone := f.DialFleet(copied, given)
	first := a.Serial()
	f.Clock.Advance(twoThirds + twoThirds/8)
	renewed(f, map[*testbed.Agent]string{a: first})
	f.Eventually("the copy's connection is dropped", clone.IsClosed)
	if nc, err := copied.DialFleet(f.URL(), given); err == nil {
		nc.Close()
		t.Error("the copy connects again")
	}
	f.Check()
}

// Each write of a renewal is lost, or its acknowledgement, or what follows it. The node always has an admitted
// certificate.
func TestARenewalSurvivesLostWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	kinds := map[string]testbed.Fault{"lost": testbed.Lost, "written but not acknowledged": testbed.LostAnswer,
		"acknowledged late": testbed.Late}
	for name, fault := range kinds {
		for _, point := range []string{"certificate", "confirmation", "both, twice"} {
			t.Run(point+" "+name, func(t *testing.T) {
				t.Parallel()
				f := testbed.New(t, testbed.Options{})
				a := f.Agent("web1.example.net", f.Token(nil), testbed.WatchOften)
				f.WaitProvisioned(a)
				first := a.Serial()
				stop := watch(t, f, a)
				switch point {
				case "certificate":
					f.Faults.RecordWrites.Inject(fault)
				case "confirmation":
					// After the renewal's write the next one is the confirmation's.
					f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) { f.Faults.RecordWrites.Inject(fault) })
				default:
					f.Faults.RecordWrites.Inject(fault, fault)
					f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) {
						f.Faults.RecordWrites.Inject(fault, fault)
					})
				}
				f.Clock.Advance(twoThirds + twoThirds/8)
				renewed(f, map[*testbed.Agent]string{a: first})
				stop()
				if got := f.Revisions(a.Identity); got != 4 {
					t.Errorf("%d revisions, want 4: nothing is written twice", got)
				}
				f.Check()
			})
		}
	}
}

// The agent returns with its own key, also if it had begun to renew and the provisioner restarted. No other node gets
// its name meanwhile.
func TestAnAgentReturnsAfterItsCertificateExpired(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		begun bool // a renewal
		want  provisioner.Reason
	}{
		"with the key that it had":                 {false, provisioner.ReasonContinue},
		"with the key that it was about to change": {true, provisioner.ReasonContinuity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			a := f.Agent("web1.example.net", f.Token(nil), testbed.WatchOften)
			f.WaitProvisioned(a)
			first := f.Record(a.Identity).Current
			if tt.begun {
				f.Write("policy/freeze.rego",
					"package muster.enroll\n\ndeny contains \"frozen\" if input.node.reason == \"renew\"\n")
				f.Eventually("the policy is in use", func() bool {
					return strings.Contains(f.Log(), `"msg":"policy reloaded"`)
				})
				f.Clock.Advance(twoThirds + twoThirds/8)
				f.Eventually("the renewal is refused", func() bool {
					return strings.HasPrefix(f.Cause(a.Identity), string(wire.CodeDenied))
				})
			}
			a.Stop()
			f.Clock.Advance(31 * 24 * time.Hour)
			f.Stop()
			f.Start()
			for range 3 {
				if got := f.Refused(f.Node(a.Identity)); got != wire.CodeIdentityTaken {
					t.Errorf("a stranger is refused as %s", got)
				}
			}
			if err := os.WriteFile(a.Token, []byte(f.Token(nil)), 0o600); err != nil {
				t.Fatal(err)
			}
			a.Start()
			f.Eventually("the node has a new certificate ("+f.Cause(a.Identity)+")", func() bool {
				return a.Provisioned() && f.Record(a.Identity).Current.Serial != first.Serial
			})
			r := f.Record(a.Identity)
			if r.Decision.Reason != tt.want || (r.Current.KeyHash == first.KeyHash) == tt.begun ||
				!slices.Contains(r.Lineage, first.KeyHash) {
				t.Errorf("record = %+v, want by %s", r, tt.want)
			}
			f.Check()
		})
	}
}
