package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestLostWritesAreRepeated loses the write of each step, or its acknowledgement. The node ends provisioned with one
// certificate.
func TestLostWritesAreRepeated(t *testing.T) {
	t.Parallel()
	faults := map[string]testbed.Fault{
		"lost": testbed.Lost, "written but not acknowledged": testbed.LostAnswer, "acknowledged late": testbed.Late,
	}
	for name, fault := range faults {
		for _, step := range []string{"record", "confirmation", "both, three times"} {
			t.Run(step+" "+name, func(t *testing.T) {
				t.Parallel()
				f := testbed.New(t, testbed.Options{})
				n := f.Node("web1.example.net")
				if step != "confirmation" {
					f.Faults.RecordWrites.Inject(fault)
				}
				if step == "both, three times" {
					f.Faults.RecordWrites.Inject(fault, fault)
				}
				e := f.Enroll(n)
				if step != "record" {
					f.Faults.RecordWrites.Inject(fault)
				}
				if step == "both, three times" {
					f.Faults.RecordWrites.Inject(fault, fault)
				}
				if r := f.Apply(n, e); r.Applied == nil {
					t.Fatalf("confirmation: %+v", r.Refusal)
				}
				if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned || r.Current.Serial != e.Serial {
					t.Errorf("record = %+v", r)
				}
				if got := f.Revisions(n.Identity); got != 2 {
					t.Errorf("%d revisions, want 2: nothing is written twice", got)
				}
				f.Check()
			})
		}
	}
}

// TestALostRaceForTheRecord: another provisioner writes between decision and write.
func TestALostRaceForTheRecord(t *testing.T) {
	t.Parallel()
	const name = "web1.example.net"
	// race enrolls first and second, which may be the same, at two provisioners; second's record is written first.
	race := func(t *testing.T, f *testbed.Fleet, first, second *simnode.Node) (*wire.Reply, *wire.Enrolled) {
		other := f.Provisioner(nil)
		won := make(chan *wire.Enrolled, 1)
		f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
			winner, err := other.Enroll(ctx, second.Request(), provisioner.Source{})
			if err != nil {
				t.Errorf("the other provisioner refuses: %v", err)
			}
			won <- winner
		})
		reply := f.Ask(first)
		select {
		case winner := <-won:
			return reply, winner
		default:
			t.Fatal("there was no race")
			return nil, nil
		}
	}
	t.Run("to the same key: the winner's certificate", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n := f.Node(name)
		reply, winner := race(t, f, n, n)
		if reply.Enrolled == nil || reply.Enrolled.Serial != winner.Serial {
			t.Fatalf("reply = %+v, want certificate %s", reply, winner.Serial)
		}
		if got := f.Revisions(name); got != 1 {
			t.Errorf("%d revisions, want 1", got)
		}
		f.Apply(n, reply.Enrolled)
		f.Check()
	})
	t.Run("to another key: refused", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		loser, other := f.Node(name), f.Node(name)
		reply, winner := race(t, f, loser, other)
		if reply.Refusal == nil || reply.Refusal.Code != wire.CodeIdentityTaken.SentAs() {
			t.Fatalf("reply = %+v", reply)
		}
		if r := f.Record(name); r.Next.Serial != winner.Serial || len(r.Lineage) != 1 {
			t.Errorf("record = %+v", r)
		}
		f.Check()
	})
	t.Run("while nothing can be read: refused at once", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n := f.Node(name)
		other := f.Provisioner(nil)
		f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
			if _, err := other.Enroll(ctx, n.Request(), provisioner.Source{}); err != nil {
				t.Errorf("the other provisioner refuses: %v", err)
			}
			f.Faults.Unreadable.Store(true)
		})
		if r := f.Ask(n); r.Refusal == nil || r.Refusal.Code != wire.CodeStoreUnavailable.SentAs() {
			t.Errorf("reply = %+v, want %s", r, wire.CodeStoreUnavailable)
		}
		if got := f.Faults.RecordWrites.Writes(); got != 1 {
			t.Errorf("%d writes were tried, want the one that met the other's", got)
		}
		f.Faults.Unreadable.Store(false)
		f.Apply(n, f.Enroll(n))
		f.Check()
	})
	t.Run("of two confirmations", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n := f.Node(name)
		e := f.Enroll(n)
		a, err := n.Confirm(e)
		if err != nil {
			t.Fatal(err)
		}
		other := f.Provisioner(nil)
		f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
			if err := other.Applied(ctx, a, provisioner.Source{}); err != nil {
				t.Errorf("the other provisioner refuses: %v", err)
			}
		})
		if r := f.Send(n, a); r.Applied == nil {
			t.Errorf("confirmation: %+v", r.Refusal)
		}
		if got := f.Revisions(name); got != 2 {
			t.Errorf("%d revisions, want 2", got)
		}
		f.Check()
	})
}

func TestAnUnreachableStoreRefuses(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store { return &broken{Store: s} })
	n := f.Node("web1.example.net")
	_, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{})
	if err == nil || provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Errorf("enroll = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	if err := p.Gate.AdmitNode(f.Context(), "web1.example.net", "1"); err == nil ||
		provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Errorf("admit = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	f.Enroll(n)
	f.Check()
}

// broken is a store whose reads fail.
type broken struct{ provisioner.Store }

func (b *broken) Record(context.Context, wire.Identity) (*provisioner.Record, trust.Revision, error) {
	return nil, 0, errors.New("store is gone")
}

// TestARestartDuringAWave stops the provisioner, as SIGTERM does, while 100 nodes enroll. Every request taken gets
// its reply, and every node ends provisioned.
func TestARestartDuringAWave(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const nodes = 100
	var wave sync.WaitGroup
	half := make(chan struct{}, nodes)
	token := f.Token(nil)
	for i := range nodes {
		wave.Go(func() {
			n, err := simnode.New(fmt.Sprintf("web%d.example.net", i), token)
			if err != nil {
				t.Error(err)
				return
			}
			provision(t, f, n)
			half <- struct{}{}
		})
	}
	for range nodes / 3 {
		<-half
	}
	f.Stop()
	f.Start()
	wave.Wait()
	provisioned := 0
	for i := range nodes {
		if r := f.Record(fmt.Sprintf("web%d.example.net", i)); r != nil && r.State == provisioner.StateProvisioned {
			provisioned++
		}
	}
	if provisioned != nodes {
		t.Errorf("%d of %d nodes are provisioned", provisioned, nodes)
	}
	f.Check()
}

// provision enrolls and confirms like an agent, until it is done.
func provision(t *testing.T, f *testbed.Fleet, n *simnode.Node) {
	f.Eventually(n.Identity+" is provisioned", func() bool {
		nc, err := simnode.Dial(f.URL(), n.Token)
		if err != nil {
			return false
		}
		defer nc.Close()
		r, err := simnode.Enroll(f.Context(), nc, n.Request())
		if err != nil || r.Enrolled == nil {
			return false
		}
		a, err := n.Confirm(r.Enrolled)
		if err != nil {
			t.Error(err)
			return true
		}
		done, err := simnode.Apply(f.Context(), nc, a)
		return err == nil && done.Applied != nil
	})
}

// TestPolicyVerdicts covers each verdict and failure of a policy. None leaves a record.
func TestPolicyVerdicts(t *testing.T) {
	t.Parallel()
	const head = "package muster.enroll\n\ndefault allow := false\n"
	tests := map[string]struct {
		policy string
		want   wire.Code
	}{
		"allowed by no rule":    {head, wire.CodeDenied},
		"denied beside allowed": {head + "allow := true\ndeny contains \"not on a Sunday\"\n", wire.CodeDenied},
		"deferred":              {head + "defer := true\n", wire.CodeDeferred},
		"approval":              {head + "approval := true\n", wire.CodeApprovalPending},
		"shutdown":              {head + "shutdown := true\n", wire.CodeShutdown},
		"a conflict": {head + "configuration := {\"a\": input.identity}\nconfiguration := {\"a\": \"b\"}\n",
			wire.CodePolicyFailed},
		"no configuration": {head + "allow := true\nconfiguration := {}\n", wire.CodeConfigurationFailed},
		"an impossible setting": {head + "allow := true\nconfiguration := {\"a\": \"b\\nc = d\"}\n",
			wire.CodeConfigurationFailed},
		"too long a lifetime": {head + "allow := true\ncertificate := {\"ttl\": \"99999h\"}\n",
			wire.CodeCertificateFailed},
		"a wildcard name": {head + "allow := true\ncertificate := {\"dns_names\": [\"*.example.net\"]}\n",
			wire.CodeCertificateFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Policy: tt.policy})
			n := f.Node("web1.example.net")
			if got := f.Refused(n); got != tt.want {
				t.Errorf("refused as %s (%s), want %s", got, f.Cause(n.Identity), tt.want)
			}
			if r := f.Record(n.Identity); r != nil {
				t.Errorf("record = %+v", r)
			}
			f.Check()
		})
	}
}

func TestPolicyMakesCertificateAndConfiguration(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.facts.role == "web"

certificate := {"ttl": "2h"}

configuration := {"role": input.facts.role, "identity": input.identity}
`})
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	e := f.Enroll(n)
	if e.Configuration["role"] != "web" || len(e.Configuration) != 2 {
		t.Errorf("configuration = %v", e.Configuration)
	}
	if r := f.Record(n.Identity); r.Next.NotAfter.Sub(r.UpdatedAt).Hours() > 2 || r.Decision.Policy == "" {
		t.Errorf("record = %+v", r)
	}
	f.Apply(n, e)
	f.Check()
}

// TestTheDefaultPolicyWaits: an unknown name is pending until the allow-list covers it.
func TestTheDefaultPolicyWaits(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	f.Allow("web*.example.net")
	stranger := f.Node("db1.example.net")
	if got := f.Refused(stranger); got != wire.CodeApprovalPending {
		t.Errorf("refused as %s, want %s", got, wire.CodeApprovalPending)
	}
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	if r := f.Record(n.Identity); r.Decision.Allowed != "web*.example.net" {
		t.Errorf("decision = %+v", r.Decision)
	}
	f.Allow("db*.example.net")
	f.Enroll(stranger)
	f.Check()
}

func TestQuotasBoundNewIdentities(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 3)})
	var known *simnode.Node
	for i := range 3 {
		known = f.Node(fmt.Sprintf("web%d.example.net", i))
		f.Apply(known, f.Enroll(known))
	}
	late := f.Node("web9.example.net")
	if got := f.Refused(late); got != wire.CodeQuotaExceeded {
		t.Errorf("refused as %s, want %s", got, wire.CodeQuotaExceeded)
	}
	f.Enroll(known) // known names are not counted
	codes := []wire.Code{}
	for _, e := range f.Events() {
		if e.Code != "" {
			codes = append(codes, e.Code)
		}
	}
	if !slices.Equal(codes, []wire.Code{wire.CodeQuotaExceeded}) {
		t.Errorf("refusals = %v", codes)
	}
	f.Check()
}
