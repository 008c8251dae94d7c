package testbed_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestAMachineThatWasPutBack puts a machine back to a snapshot from before it was
// reconfigured: it has the key and the certificate that are on record, so it is let in, and
// ends with the configuration that is on record as well.
func TestAMachineThatWasPutBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: generation("one"), Alive: 50 * time.Millisecond})
	a := f.AgentWith("web1.example.net", f.Token(nil), testbed.Watchful)
	f.WaitProvisioned(a)
	before := f.Record(a.Identity).Current
	confirmed := filepath.Join(a.Dir, "confirmed.json")
	f.Eventually("the node knows that, and that its brokers can be reached: its files rest", func() bool {
		_, err := os.Stat(confirmed)
		_, untried := os.Stat(filepath.Join(a.Dir, "untried"))
		return err == nil && errors.Is(untried, fs.ErrNotExist)
	})
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := os.CopyFS(snapshot, os.DirFS(a.Dir)); err != nil {
		t.Fatal(err)
	}
	f.Write("policy/policy.rego", generation("two"))
	f.Eventually("the policy is in use", func() bool { return strings.Contains(f.Log(), `"msg":"policy reloaded"`) })
	order(t, f, a.Identity, provisioner.Order{Verb: wire.VerbReconfigure})
	f.Eventually("the new configuration", func() bool { return f.Record(a.Identity).Current.Digest != before.Digest && a.Provisioned() })
	after := f.Record(a.Identity).Current
	a.Stop()
	if err := os.RemoveAll(a.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(snapshot, a.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(a.Dir, "private.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Start()
	f.Eventually("the new configuration is in force again", func() bool {
		conf, err := os.ReadFile(filepath.Join(a.Dir, "server.conf"))
		return err == nil && strings.Contains(string(conf), "generation = two")
	})
	f.Eventually("it is confirmed", func() bool { _, err := os.Stat(confirmed); return err == nil && a.Provisioned() })
	if r := f.Record(a.Identity); r.Current.Serial != before.Serial || r.Current.Digest != after.Digest {
		t.Errorf("certificate %s with %s, want %s with %s", r.Current.Serial, r.Current.Digest, before.Serial, after.Digest)
	}
	f.Check()
}

// TestAFleetHearsOfASlip has a policy give out what no node can use: whoever watches is told
// what it is, and once it is corrected the node goes on by itself.
func TestAFleetHearsOfASlip(t *testing.T) {
	t.Parallel()
	slip := strings.Replace(generation("one"), `"generation"`, `"alive_interval": "100ms", "generation"`, 1)
	f := testbed.New(t, testbed.Options{Policy: slip})
	a := f.AgentWith("web1.example.net", f.Token(nil), testbed.Watchful)
	f.Eventually("the node's complaint", func() bool {
		return slices.ContainsFunc(f.Events(), func(e provisioner.Event) bool {
			return e.Type == provisioner.EventRefused && e.Code == wire.CodeOfferUnusable && strings.Contains(e.Cause, "alive_interval")
		})
	})
	f.Write("policy/policy.rego", generation("two"))
	f.Eventually("the policy is in use", func() bool { return strings.Contains(f.Log(), `"msg":"policy reloaded"`) })
	f.Eventually("it is provisioned when it asks again", func() bool {
		f.Clock.Advance(time.Minute) // it was told to wait, and may not have begun to
		return a.Provisioned()
	})
	f.Check()
}
