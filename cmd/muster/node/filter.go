package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/span"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// filter is which nodes a verb is about, as flags.
type filter struct {
	fleet.Filter
	states                []string
	expiresBefore, unseen string
}

func (f *filter) addFlags(c *kingpin.CmdClause) {
	addNameFlags(c, &f.Filter)
	c.Flag("state", "In this state: enrolled, provisioned, revoked or retired. Repeatable.").PlaceHolder("STATE").StringsVar(&f.states)
	c.Flag("expires-before", "The certificate ends before then.").PlaceHolder("TIME").StringVar(&f.expiresBefore)
	c.Flag("unseen", "Not heard of since then, or for so long.").PlaceHolder("TIME").StringVar(&f.unseen)
	c.Flag("policy", "Decided by the policy with this digest, or one that begins so.").PlaceHolder("DIGEST").StringVar(&f.Policy)
}

// addNameFlags adds the flags that select machines on record and machines that wait alike.
func addNameFlags(c *kingpin.CmdClause, f *fleet.Filter) {
	c.Flag("site", "At this site.").PlaceHolder("SITE").StringVar((*string)(&f.Site))
	c.Flag("prefix", "The name begins so.").PlaceHolder("TEXT").StringVar(&f.Prefix)
	c.Flag("match", "The name fits, label by label, as in 'web*.example.net'.").PlaceHolder("GLOB").StringVar((*string)(&f.Match))
	c.Flag("token", "Came with the token of this id.").PlaceHolder("ID").StringVar((*string)(&f.Token))
	c.Flag("fact", "Has said this fact, of those that are kept; * in VALUE is any text. Repeatable: all must fit.").PlaceHolder("NAME=VALUE").StringsVar(&f.Facts)
}

// empty reports whether nothing is filtered.
func (f *filter) empty() bool {
	return f.IsZero() && len(f.states) == 0 && f.expiresBefore+f.unseen == ""
}

// query returns q with the filter, or all that is wrong with it.
func (f *filter) query(q fleet.Query, now time.Time) (fleet.Query, error) {
	q.Filter = f.Filter
	for _, s := range f.states {
		q.States = append(q.States, provisioner.State(s))
	}
	var expires, unseen error
	if f.expiresBefore != "" {
		q.ExpiresBefore, expires = span.ParseTime(f.expiresBefore, now)
	}
	if f.unseen != "" {
		q.SeenBefore, unseen = span.ParsePast(f.unseen, now)
		if q.SeenBefore.After(now) {
			unseen = fmt.Errorf("%s is in the future, and every node would match: want a time in the past", verb.Instant(q.SeenBefore))
		}
	}
	return q, errors.Join(verb.Flag("expires-before", expires), verb.Flag("unseen", unseen), verb.Flags(q.Check()))
}

// pages asks for page after page and calls each for them, until it wants no more.
func pages(ctx context.Context, o *verb.Operator, q fleet.Query, each func(*fleet.Page) (limit int)) error {
	for {
		p, err := verb.Get[*fleet.Page](ctx, o, "/v1/nodes?"+httpapi.NodeQuery(q).Encode())
		if err != nil {
			return err
		}
		if q.Cursor, q.Limit = p.Next, each(p); q.Cursor == "" || q.Limit == 0 {
			return nil
		}
	}
}
