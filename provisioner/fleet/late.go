package fleet

import (
	"slices"
	"time"

	"muster/internal/wire"
)

// A LateNode is in the last quarter of its certificate's life: agents renew before, see renewAt in package server.
type LateNode struct {
	Identity  wire.Identity
	Expires   time.Time
	Connected ConnectionState
	Fault     string // as its agent reports, or ""
}

// Late returns the nodes of the fleet with muster's agent that are late and whose certificates have not expired, those
// first that expire first.
func (x *Index) Late(now time.Time) []LateNode {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var late []LateNode
	for i := range x.nodes {
		n, at := &x.nodes[i], nanos(now)
		if n.issued == 0 || at >= n.expires || at < n.expires-(n.expires-n.issued)/4 {
			continue
		}
		if l := x.liveness(n); l != nil {
			late = append(late, LateNode{n.id, instant(n.expires).Truncate(time.Second), l.Connected, x.of(n).Fault})
		}
	}
	slices.SortFunc(late, func(a, b LateNode) int { return a.Expires.Compare(b.Expires) })
	return late
}
