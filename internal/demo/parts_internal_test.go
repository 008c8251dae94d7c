package demo

import (
	"testing"

	"muster/internal/wire"
)

// TestAFleetHasEveryPart looks at the least, a usual and the largest fleet.
func TestAFleetHasEveryPart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{MinStay, 200, 2000, MaxNodes} {
		all := machines(n)
		if len(all) != n {
			t.Errorf("%d machines, want %d", len(all), n)
		}
		names, parts := map[string]bool{}, map[string]int{}
		for _, m := range all {
			if _, err := wire.ParseIdentity(m.name); err != nil || names[m.name] {
				t.Errorf("%d machines: %q twice, or %v", n, m.name, err)
			}
			names[m.name] = true
			parts[m.part]++
		}
		for _, w := range what {
			if w.part != partRogue && parts[w.part] == 0 {
				t.Errorf("%d machines: none is %s", n, w.part)
			}
		}
		if others := n - parts[partMembers]; n >= 200 && others > n/10 {
			t.Errorf("%d machines: only %d just work", n, parts[partMembers])
		}
		if parts[partLimited] != uses(n)+2 {
			t.Errorf("%d machines: %d share a token for %d", n, parts[partLimited], uses(n))
		}
	}
}
