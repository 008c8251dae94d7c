package provisioner

import (
	"testing"
	"time"

	"muster/provisioner/waiting"
)

// TestKeysWithANewCertificateAreNotPending: only a certificate offered since the last request counts.
func TestKeysWithANewCertificateAreNotPending(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	offered := func(key string, after time.Duration) *Issued {
		return &Issued{KeyHash: key, OfferedAt: asked.Add(after)}
	}
	for name, tt := range map[string]struct {
		record       *Record
		in, inSilent bool // for a key that asked lately, and for a silent one
	}{
		"never seen": {nil, false, false},
		"offered since": {&Record{State: StateEnrolled, Next: offered("a", time.Second), Lineage: []string{"a"}},
			true, true},
		"confirmed since": {&Record{State: StateProvisioned, Current: offered("a", time.Second),
			Lineage: []string{"a"}}, true, true},
		"offered before": {&Record{State: StateProvisioned, Current: offered("a", -time.Second),
			Lineage: []string{"a"}}, false, true},
		"another key since": {&Record{State: StateEnrolled, Next: offered("b", time.Second), Lineage: []string{"b"}},
			false, false},
		"renewed by another key": {&Record{
			State:   StateProvisioned,
			Current: offered("a", -time.Second),
			Next:    offered("b", time.Second),
			Lineage: []string{"a", "b"},
		}, false, true},
		"lost to a grant": {&Record{
			State:   StateProvisioned,
			Current: offered("a", time.Second),
			Next:    offered("b", time.Minute),
			Lineage: []string{"b"},
		}, false, false},
		"revoked since": {&Record{State: StateRevoked, Current: offered("a", time.Second),
			Lineage: []string{"a"}}, false, false},
		"retired, as a new machine": {&Record{State: StateRetired, Lineage: []string{"a"}}, false, false},
	} {
		w := &waiting.Key{KeyHash: "a", LastAsked: asked}
		if in, silent := tt.record.HasEnrolled(w, false), tt.record.HasEnrolled(w, true); in != tt.in ||
			silent != tt.inSilent {
			t.Errorf("%s: enrolled %v, and %v if silent; want %v and %v", name, in, silent, tt.in, tt.inSilent)
		}
	}
}
