package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
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
	c.Flag("state", "In this state: enrolled, provisioned, revoked or retired. Repeatable.").PlaceHolder("STATE").StringsVar(&f.states)
	c.Flag("site", "At this site.").PlaceHolder("SITE").StringVar((*string)(&f.Site))
	c.Flag("prefix", "The name begins so.").PlaceHolder("TEXT").StringVar(&f.Prefix)
	c.Flag("match", "The name fits, label by label, as in 'web*.example.net'.").PlaceHolder("GLOB").StringVar((*string)(&f.Match))
	c.Flag("expires-before", "The certificate ends before then.").PlaceHolder("TIME").StringVar(&f.expiresBefore)
	c.Flag("unseen", "Not heard of since then, or for so long.").PlaceHolder("TIME").StringVar(&f.unseen)
	c.Flag("token", "Enrolled with the token of this id.").PlaceHolder("ID").StringVar((*string)(&f.Token))
	c.Flag("fact", "Has said this fact, of those that are kept; * in VALUE is any text. Repeatable: all must fit.").PlaceHolder("NAME=VALUE").StringsVar(&f.Facts)
	c.Flag("policy", "Decided by the policy with this digest, or one that begins so.").PlaceHolder("DIGEST").StringVar(&f.Policy)
}

// empty reports whether nothing is filtered.
func (f *filter) empty() bool {
	return len(f.states)+len(f.Facts) == 0 && string(f.Site)+f.Prefix+string(f.Match)+f.expiresBefore+f.unseen+string(f.Token)+f.Policy == ""
}

// query returns q with the filter, or all that is wrong with it.
func (f *filter) query(q fleet.Query, now time.Time) (fleet.Query, error) {
	q.Filter = f.Filter
	for _, s := range f.states {
		q.States = append(q.States, provisioner.State(s))
	}
	var expires, unseen error
	if f.expiresBefore != "" {
		q.ExpiresBefore, expires = cli.ParseInstant(f.expiresBefore, now)
	}
	if f.unseen != "" {
		q.SeenBefore, unseen = cli.ParseInstant(f.unseen, now)
		if d, err := cli.ParseDuration(f.unseen); err == nil { // a span is one that has passed
			q.SeenBefore = now.Add(-d)
		} else if unseen == nil && q.SeenBefore.After(now) {
			unseen = fmt.Errorf("%s is to come: want a time that has passed, every machine would fit", verb.Instant(q.SeenBefore))
		}
	}
	return q, errors.Join(verb.Flag("expires-before", expires), verb.Flag("unseen", unseen), f.fitsNone(), checkQuery(&q))
}

// fitsNone reports values that no machine can have: an empty list would say that there are none.
func (f *filter) fitsNone() error {
	errs := []error{verb.CheckSite(string(f.Site))}
	if strings.Trim(f.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		errs = append(errs, fmt.Errorf("--prefix is %.80q, and names are of a-z, 0-9, - and dots", f.Prefix))
	}
	if strings.Trim(f.Policy, "0123456789abcdef") != "" || len(f.Policy) > 64 {
		errs = append(errs, fmt.Errorf("--policy is %.80q, want 1 to 64 lower-case hex digits, as `muster node show` prints them", f.Policy))
	}
	return errors.Join(errs...)
}

// checkQuery reports what a provisioner would have against q, as of the flags, which are
// called as its parameters are.
func checkQuery(q *fleet.Query) error {
	err := q.Check()
	if err == nil {
		return nil
	}
	return errors.New("--" + strings.ReplaceAll(err.Error(), "\n", "\n--"))
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

// sayUnknown says how many nodes may fit, and are left out.
func sayUnknown(o *verb.Operator, p *fleet.Page) {
	if p.Unknown > 0 {
		o.Say("left out: %s not heard of since %s, when the store began to keep that; whether they were before is not known",
			verb.Machines(p.Unknown), verb.Instant(p.HeardSince))
	}
}
