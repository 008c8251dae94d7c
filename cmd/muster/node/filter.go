package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/paging"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// filter selects nodes with a record, by flags.
type filter struct {
	fleet.Filter

	minUnseen time.Duration // the shortest span of --unseen; 0 is any

	expiresBefore, unseen string
}

func (f *filter) addFlags(c *kingpin.CmdClause) {
	addNameFlags(c, &f.Filter)
	state := cli.Flag(c, "state").HintOptions("enrolled", "provisioned", "revoked", "retired")
	cli.ParseEach(state, &f.States, func(s string) (provisioner.State, error) {
		return provisioner.State(s), nil // checked with the other filters
	})
	cli.Flag(c, "expires-before").StringVar(&f.expiresBefore)
	cli.Flag(c, "unseen").StringVar(&f.unseen)
	cli.Flag(c, "policy").StringVar(&f.Policy)
	cli.Flag(c, "faulty").BoolVar(&f.Faulty)
	cli.Flag(c, "protocol").HintOptions(provisioner.Protocols...).StringVar(&f.Protocol)
}

// addNameFlags adds the flags that select nodes with a record and pending nodes alike.
func addNameFlags(c *kingpin.CmdClause, f *fleet.Filter) {
	cli.Flag(c, "site").StringVar((*string)(&f.Site))
	cli.Parse(cli.Flag(c, "prefix"), &f.Prefix, func(s string) (string, error) {
		return strings.ToLower(strings.TrimSpace(s)), nil // a dot at its end counts
	})
	cli.Parse(cli.Flag(c, "match"), &f.Match, func(s string) (wire.Pattern, error) {
		return wire.Pattern(wire.FoldName(s)), nil // checked with the other filters
	})
	cli.Flag(c, "token-id").HintAction(verb.TokenIDs).StringVar((*string)(&f.Token))
	cli.Flag(c, "fact").StringsVar(&f.Facts)
}

// empty reports whether no filter is given.
func (f *filter) empty() bool { return f.IsZero() && f.expiresBefore+f.unseen == "" }

// query returns q with the filter, or all mistakes in it.
func (f *filter) query(q fleet.Query, now time.Time) (fleet.Query, error) {
	q.Filter = f.Filter
	var expires, unseen error
	if f.expiresBefore != "" {
		q.ExpiresBefore, expires = span.ParseTime(f.expiresBefore, now)
	}
	if f.unseen != "" {
		q.SeenBefore, unseen = span.ParsePast(f.unseen, now)
		if q.SeenBefore.After(now) {
			unseen = fmt.Errorf("%s is in the future, and every node would match: want a time in the past",
				verb.Instant(q.SeenBefore))
		}
	}
	return q, errors.Join(verb.Flag("expires-before", expires), verb.Flag("unseen", unseen), verb.Flags(q.Check()))
}

func (f *filter) hints() []string { return verb.NodeNames() }

func (f *filter) check() error {
	q, err := f.query(fleet.Query{}, time.Now())
	if before := q.SeenBefore; err == nil && !before.IsZero() && time.Since(before) < f.minUnseen {
		err = fmt.Errorf("--unseen: %s is less than %s ago, and running nodes report every half hour only: "+
			"want 1h or more (m is minutes, M months)",
			verb.Instant(before), span.Format(f.minUnseen))
	}
	return err
}

// choose implements [selection]. Nodes that are revoked or retired are chosen by --state only.
func (f *filter) choose(ctx context.Context, o *verb.Operator, pattern wire.Pattern, w *targets) error {
	q, err := f.query(fleet.Query{Query: paging.Query{Limit: paging.MaxLimit}}, time.Now())
	if err != nil {
		return err
	}
	if len(q.States) == 0 {
		q.States = live
	}
	q.Match = cmp.Or(q.Match, pattern)
	w.SeenBefore = q.SeenBefore
	return pages(ctx, o, q, func(p *fleet.Page) int {
		for i := range p.Nodes {
			n := &p.Nodes[i]
			if pattern == "" || pattern.Match(n.Identity) {
				seen := provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince}
				w.Targets = append(w.Targets, target{Node: n.Identity, State: n.State, Seen: seen})
			}
		}
		return paging.MaxLimit
	})
}

// pages calls each for every page of the list. each returns the limit of the next page, 0 to stop.
func pages(ctx context.Context, o *verb.Operator, q fleet.Query, each func(*fleet.Page) (limit int)) error {
	return verb.Pages(ctx, o, "/v1/nodes", httpapi.NodeQuery(q), func(p *fleet.Page) (string, int) {
		return p.Next, each(p)
	})
}
