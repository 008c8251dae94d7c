package puppet_test

import (
	"crypto/x509"
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

const year = 365 * 24 * time.Hour

// served returns the lists by their issuers' names, as an agent gets them.
func served(a *agent) (issuing, root *x509.RevocationList) {
	a.t.Helper()
	for _, l := range lists(a.t, a.get("certificate_revocation_list/ca").body) {
		if l.Issuer.CommonName == "fleet.test Puppet CA" {
			issuing = l
		} else {
			root = l
		}
	}
	if issuing == nil || root == nil {
		a.t.Fatal("want a list of the issuing CA and one of the root")
	}
	return issuing, root
}

// TestListsOutlastAnAgentThatIsOff: an agent verifies the gateway with its saved lists before it fetches new ones.
func TestListsOutlastAnAgentThatIsOff(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := newAgent(t, f, "web1.example.net")
	now := f.Clock.Now()
	issuing, root := served(a)
	if left := issuing.NextUpdate.Sub(now); left < 5*year-time.Hour {
		t.Errorf("the issuing CA's list is good for %v", left)
	}
	if early := now.Sub(issuing.ThisUpdate); early < time.Hour {
		t.Errorf("the issuing CA's list is valid since %v", early)
	}
	if left := root.NextUpdate.Sub(now); left < 9*year || len(root.RevokedCertificateEntries) > 0 {
		t.Errorf("the root's list is good for %v: %+v", left, root.RevokedCertificateEntries)
	}
	// The lists of all else stay short.
	if main := f.Daemon().CRLs()[0]; main.NextUpdate.Sub(main.ThisUpdate) > trust.DefaultCRLValidity {
		t.Errorf("the broker's list is good until %v", main.NextUpdate)
	}
	f.Check()
}

// TestRevokedAgentIsListedUntilOneListAfterItsEnd moves the clock through the life of a revocation.
func TestRevokedAgentIsListedUntilOneListAfterItsEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := enrolled(t, f, "web1.example.net")
	if a.listed() {
		t.Fatal("listed before it was revoked")
	}
	f.Revoke("web1.example.net")
	began := time.Now()
	f.Eventually("the agent is listed", a.listed)
	if took := time.Since(began); took > 20*time.Second { // a second, on a machine that does nothing else
		t.Errorf("listed after %v", took)
	}
	if f.OnCRL(a.leaf.SerialNumber.Text(16)) {
		t.Error("it is on the broker's list too")
	}
	first, _ := served(a)
	f.Clock.Advance(29 * 24 * time.Hour)
	enrolled(t, f, "web2.example.net") // as an action in between
	if now, _ := served(a); now.Number.Cmp(first.Number) != 0 {
		t.Errorf("list %v within a month, though nothing was revoked", now.Number)
	}
	newer := func() bool { now, _ := served(a); return now.Number.Cmp(first.Number) > 0 }
	f.Clock.Advance(2 * 24 * time.Hour)
	f.Eventually("a new list after a month", newer)

	f.Clock.Advance(a.leaf.NotAfter.Sub(f.Clock.Now()) + time.Minute)
	f.Eventually("a new list after the end of its certificate", func() bool {
		now, _ := served(a)
		return now.ThisUpdate.After(a.leaf.NotAfter.Add(-7 * time.Hour))
	})
	if !a.listed() {
		t.Error("it fell off before it was on a list from after its end")
	}
	first, _ = served(a)
	f.Clock.Advance(31 * 24 * time.Hour)
	f.Eventually("the next list", newer)
	if a.listed() {
		t.Error("it stays on the list")
	}
	f.Check()
}

// TestExpiredEntriesSurviveARestart: another process does not know which lists there were.
func TestExpiredEntriesSurviveARestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := enrolled(t, f, "web1.example.net")
	f.Revoke("web1.example.net")
	f.Eventually("the agent is listed", a.listed)
	f.Stop()
	f.Clock.Advance(2 * year)
	f.Start()
	a.connect()
	if !a.listed() {
		t.Error("it fell off while the provisioner was stopped")
	}
	f.Check()
}

// TestProvisionersShareAnAuthority: two of them list each other's revocations for agents.
func TestProvisionersShareAnAuthority(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	other := f.Provisioner(nil)
	for i, p := range []*trust.CRLs{other.PuppetCRLs(), f.Daemon().Operator().PuppetCRLs()} {
		a := enrolled(t, f, fmt.Sprintf("web%d.example.net", i))
		f.Revoke(a.name)
		f.Eventually("it is on the list of each", func() bool {
			l, err := x509.ParseRevocationList(p.Newest().DER)
			return err == nil && len(l.RevokedCertificateEntries) == i+1
		})
	}
	f.Check()
}

// TestGatewayIsAFeature shows it, and its names are no node's.
func TestGatewayIsAFeature(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	f.Eventually("the feature runs", func() bool {
		all, err := f.Daemon().Store().Components(f.Context())
		must(t, err)
		return len(all) == 1 && slices.ContainsFunc(all[0].Features, func(f fleet.Feature) bool {
			return f.Name == fleet.FeaturePuppetCA && f.State == fleet.FeatureRunning
		})
	})
	for _, name := range []string{"puppet", "ca", "autosign", "validate", "puppet.fleet.test"} {
		a := newAgent(t, f, name)
		a.put()
		if got := a.get("certificate/" + name); name != "ca" && got.status != 404 || f.Record(name) != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f.Check()
}
