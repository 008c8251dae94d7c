package testbed_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
	"muster/server"
)

// generation is a policy that pushes one value.
func generation(n string) string {
	return "package muster.enroll\n\ndefault allow := true\n\nconfiguration := {\"generation\": \"" + n + "\"}\n"
}

// A write of a new configuration's offer or confirmation is lost, or its acknowledgement, or the provisioner ends
// right after it. The node ends with the new configuration on record and the same certificate.
func TestAReconfigurationSurvivesLostWrites(t *testing.T) {
	t.Parallel()
	inOffer := func(fault testbed.Fault) func(*testbed.Fleet) {
		return func(f *testbed.Fleet) { f.Faults.RecordWrites.Inject(fault) }
	}
	inConfirmation := func(fault testbed.Fault) func(*testbed.Fleet) {
		return func(f *testbed.Fleet) {
			f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) { f.Faults.RecordWrites.Inject(fault) })
		}
	}
	for name, tt := range map[string]struct {
		wrong func(*testbed.Fleet)
		end   int // the provisioner ends after this revision; 0: never
	}{
		"offer lost":                                     {inOffer(testbed.Lost), 0},
		"offer written but not acknowledged":             {inOffer(testbed.LostAnswer), 0},
		"offer written late":                             {inOffer(testbed.Late), 0},
		"confirmation lost":                              {inConfirmation(testbed.Lost), 0},
		"confirmation written but not acknowledged":      {inConfirmation(testbed.LostAnswer), 0},
		"confirmation written late":                      {inConfirmation(testbed.Late), 0},
		"provisioner ends after it has made the offer":   {nil, 3},
		"provisioner ends after it has heard of its end": {nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Policy: generation("one")})
			a := f.Agent("web1.example.net", f.Token(nil), func(c *server.Config) {
				testbed.WatchOften(c)
				c.RequestTimeout = time.Second
			})
			f.WaitProvisioned(a)
			before := f.Record(a.Identity).Current
			f.Write("policy/policy.rego", generation("two"))
			f.Eventually("the policy is in use", func() bool {
				return strings.Contains(f.Log(), `"msg":"policy reloaded"`)
			})
			if tt.wrong != nil {
				tt.wrong(f)
			}
			order(t, f, a.Identity, operate.CommandOrder{Verb: wire.VerbReconfigure})
			if tt.end > 0 {
				f.Eventually("the write", func() bool { return f.Revisions(a.Identity) >= tt.end })
				f.Stop()
				f.Start()
			}
			f.Eventually("the new configuration is on record, confirmed", func() bool {
				r := f.Record(a.Identity)
				return r.State == provisioner.StateProvisioned && r.Next == nil && r.Current.Digest != before.Digest &&
					a.Provisioned()
			})
			if after := f.Record(a.Identity).Current; after.Serial != before.Serial || after.KeyHash != before.KeyHash {
				t.Errorf("certificate %s, want %s as before", after.Serial, before.Serial)
			}
			f.Check()
		})
	}
}
