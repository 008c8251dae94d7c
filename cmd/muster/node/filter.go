package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// filter selects nodes with a record, by flags.
type filter struct {
	verb.Filter

	minUnseen time.Duration // the shortest span of --unseen; 0 is any
}

func (f *filter) addFlags(c *kingpin.CmdClause) {
	addNameFlags(c, &f.Filter)
	f.Flag(c, "state*").HintOptions("enrolled", "provisioned", "revoked", "retired")
	f.Flag(c, "expires-before")
	f.Flag(c, "unseen")
	f.Flag(c, "connected").HintOptions("yes", "no", "unknown")
	f.Flag(c, "for")
	f.Flag(c, "policy")
	f.Switch(c, "faulty")
	f.Flag(c, "protocol").HintOptions(provisioner.Protocols...)
}

// addNameFlags adds the flags that select nodes with a record and pending nodes alike.
func addNameFlags(c *kingpin.CmdClause, q *verb.Filter) {
	q.Flag(c, "site")
	q.Flag(c, "prefix")
	q.Flag(c, "match")
	q.Flag(c, "token-id").HintAction(verb.TokenIDs)
	q.Flag(c, "fact*")
}

func (f *filter) hints() []string { return verb.NodeNames() }

func (f *filter) check() error {
	q, err := fleet.ParseQuery(f.Values, time.Now())
	if before := q.SeenBefore; err == nil && !before.IsZero() && time.Since(before) < f.minUnseen {
		err = fmt.Errorf("seen_before: %s is less than %s ago, and running nodes report every half hour only: "+
			"want 1h or more (m is minutes, M months)",
			verb.Instant(before), span.Format(f.minUnseen))
	}
	return f.Flags(err)
}

// choose implements [selection]. Nodes that are revoked or retired are chosen by --state only.
func (f *filter) choose(ctx context.Context, o *verb.Operator, pattern wire.Pattern, w *targets) error {
	v := maps.Clone(f.Values)
	q, err := fleet.ParseQuery(v, time.Now())
	if err != nil {
		return err
	}
	if !q.SeenBefore.IsZero() { // the order has the same condition
		w.SeenBefore = q.SeenBefore
		v.Set("seen_before", q.SeenBefore.Format(time.RFC3339))
	}
	if len(q.States) == 0 {
		v["state"] = live
	}
	if match := cmp.Or(q.Match, pattern); match != "" {
		v.Set("match", string(match))
	}
	p, err := list.Get(ctx, o, v, 0)
	if err != nil {
		return err
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if pattern == "" || pattern.Match(n.Identity) {
			seen := provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince}
			w.Targets = append(w.Targets, target{Node: n.Identity, State: n.State, Seen: seen})
		}
	}
	return nil
}
