package chaos_test

import (
	"fmt"
	"strings"
	"testing"
)

// The checker gets stores that no correct program writes.
func TestTheCheckerFindsViolations(t *testing.T) {
	t.Parallel()
	record := func(state, attempt string, more ...string) stored {
		return stored{subject: "muster.node.web1_chaos_test", data: []byte(fmt.Sprintf(
			`{"identity":"web1.chaos.test","state":%q,"attempt":%q,"tid":"t","decision":{"reason":"new"}%s}`, state,
			attempt, strings.Join(more, "")))}
	}
	const (
		next    = `,"next":{"serial":"a1","key_hash":"k1"}`
		current = `,"current":{"serial":"a1","key_hash":"k1"}`
	)
	entry := func(text string) stored { return stored{subject: "muster.claims.t", data: []byte(text)} }
	first := entry(`{"token":{"uses":1},"claims":[{"key":"k1","identity":"web1.chaos.test","attempt":"1"}]}`)
	tests := map[string]struct {
		records, claims []stored
		want            string
	}{
		"a move that is none": {[]stored{record("provisioned", "1", current)}, nil, "provisioned follows none"},
		"a move back": {[]stored{record("enrolled", "1", next), record("provisioned", "2", current),
			record("enrolled", "3", next)}, nil, "enrolled follows provisioned"},
		"an attempt twice": {[]stored{record("enrolled", "1", next), record("enrolled", "1", next)}, nil,
			"has written before"},
		"confirmed and never offered": {[]stored{record("enrolled", "1", next),
			record("provisioned", "2", strings.ReplaceAll(current, "a1", "b2"))}, nil, "never offered"},
		"enrolled with nothing": {[]stored{record("enrolled", "1")}, nil, "is enrolled with"},
		"another's subject": {[]stored{{subject: "muster.node.web2_chaos_test",
			data: record("enrolled", "1", next).data}}, nil, "is on muster.node.web2"},
		"a use without a claim": {[]stored{record("enrolled", "1", strings.ReplaceAll(next, "k1", "k2"))},
			[]stored{first}, "holds no use"},
		"a use too many": {nil, []stored{first,
			entry(`{"claims":[{"key":"k2","identity":"web2.chaos.test","attempt":"2"}]}`)},
			"2 uses are held, the limit is 1"},
		"a use counted twice": {nil, []stored{first,
			entry(`{"claims":[{"key":"k1","identity":"web1.chaos.test","attempt":"1"}]}`)}, "claims twice"},
		"a certificate that is none": {[]stored{record("enrolled", "1", next)}, []stored{first}, "certificate a1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said []string
			c := newChecker(t)
			c.bad = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
			c.store(map[string][]stored{"MUSTER_NODES": tt.records, "MUSTER_CLAIMS": tt.claims})
			if !strings.Contains(strings.Join(said, "\n"), tt.want) {
				t.Errorf("it says %q, want %q", said, tt.want)
			}
		})
	}
}
