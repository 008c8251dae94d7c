package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// nodeListVerb is "muster node list".
type nodeListVerb struct {
	operator
	filter nodeFilter
	sort   string
	limit  int
	cursor string
}

// nodeFilter is which nodes a verb is about, as flags.
type nodeFilter struct {
	states                []string
	site, prefix, match   string
	expiresBefore, unseen string
	token, policy         string
	facts                 []string
}

const nodeListHelp = `Lists machines with a record here, those without a certificate too. All flags that
are given must fit. The last line counts all that fit, by state, on stderr.

Times are an instant such as 2027-01-31T12:00:00Z or a span: --expires-before 7d is
"within the next seven days", --unseen 30d "not heard of for thirty days".

  muster node list --state enrolled        # let in, and has not confirmed it
  muster node list --expires-before 3d --sort expires
  muster node list --match 'web*.example.net' --site ams1 --json
  muster node list --fact os.name=Debian --fact 'role=db*'
  muster node list --unseen 30d --limit 0  # every one of them

Facts are the machine's own word, as of when it last enrolled, renewed or was
reconfigured. Those that are kept are named in fleet.facts of provisioner.yaml; --json
has them. NAME= is for machines that have not said NAME.`

func addNodeList(parent *kingpin.CmdClause, all verbs) {
	v := &nodeListVerb{}
	c := parent.Command("list", "List machines: their state, certificate, and when they were last heard of.").HelpLong(nodeListHelp)
	v.filter.add(c)
	c.Flag("sort", "name, expires (the first to expire first) or changed (the newest first).").Default(string(fleet.ByName)).StringVar(&v.sort)
	cli.Int(c.Flag("limit", "List so many; 0 for all.").Default("100"), &v.limit)
	c.Flag("cursor", "Go on where an earlier list has ended: \"next\" of its JSON.").PlaceHolder("CURSOR").StringVar(&v.cursor)
	v.add(c, all)
	all.Check(c, func() error { _, err := v.query(); return err })
	all[c.FullCommand()] = v.run
}

func (f *nodeFilter) add(c *kingpin.CmdClause) {
	c.Flag("state", "In this state: enrolled, provisioned, revoked or retired. Repeatable.").PlaceHolder("STATE").StringsVar(&f.states)
	c.Flag("site", "At this site.").PlaceHolder("SITE").StringVar(&f.site)
	c.Flag("prefix", "The name begins so.").PlaceHolder("TEXT").StringVar(&f.prefix)
	c.Flag("match", "The name fits, label by label, as in 'web*.example.net'.").PlaceHolder("GLOB").StringVar(&f.match)
	c.Flag("expires-before", "The certificate ends before then.").PlaceHolder("TIME").StringVar(&f.expiresBefore)
	c.Flag("unseen", "Not heard of since then, or for so long.").PlaceHolder("TIME").StringVar(&f.unseen)
	c.Flag("token", "Enrolled with the token of this id.").PlaceHolder("ID").StringVar(&f.token)
	c.Flag("fact", "Has said this fact, of those that are kept; * in VALUE is any text. Repeatable: all must fit.").PlaceHolder("NAME=VALUE").StringsVar(&f.facts)
	c.Flag("policy", "Decided by the policy with this digest, or one that begins so.").PlaceHolder("DIGEST").StringVar(&f.policy)
}

// empty reports whether nothing is filtered.
func (f *nodeFilter) empty() bool {
	return len(f.states)+len(f.facts) == 0 && f.site+f.prefix+f.match+f.expiresBefore+f.unseen+f.token+f.policy == ""
}

// parse returns the filter; the error has what is wrong with it that a provisioner would not
// say, since it looks for it and finds nothing. The rest is [checkQuery]'s.
func (f *nodeFilter) parse(now time.Time) (fleet.Filter, error) {
	filter := fleet.Filter{Site: jwt.Site(f.site), Prefix: f.prefix, Match: wire.Pattern(f.match), Token: jwt.TokenID(f.token), Policy: f.policy, Facts: f.facts}
	for _, s := range f.states {
		filter.States = append(filter.States, provisioner.State(s))
	}
	var expires, unseen error
	if f.expiresBefore != "" {
		if filter.ExpiresBefore, expires = cli.ParseInstant(f.expiresBefore, now); expires != nil {
			expires = fmt.Errorf("--expires-before: %w", expires)
		}
	}
	if f.unseen != "" {
		// A span is one that has passed.
		if filter.SeenBefore, unseen = cli.ParseInstant(f.unseen, now); unseen != nil {
			unseen = fmt.Errorf("--unseen: %w", unseen)
		} else if d, err := cli.ParseDuration(f.unseen); err == nil {
			filter.SeenBefore = now.Add(-d)
		} else if filter.SeenBefore.After(now) {
			unseen = fmt.Errorf("--unseen: %s is to come: want a time that has passed, every machine would fit", instant(filter.SeenBefore))
		}
	}
	return filter, errors.Join(expires, unseen, f.fitsNone())
}

// digits are those of a digest.
const digits = "0123456789abcdef"

// fitsNone reports values that no machine can have: an empty list would say that there are none.
func (f *nodeFilter) fitsNone() error {
	var errs []error
	if f.site != "" {
		if _, err := jwt.ParseSite(f.site); err != nil {
			errs = append(errs, fmt.Errorf("--site: %w", err))
		}
	}
	if strings.Trim(f.prefix, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		errs = append(errs, fmt.Errorf("--prefix is %.80q, and names are of a-z, 0-9, - and dots", f.prefix))
	}
	if strings.Trim(f.policy, digits) != "" || len(f.policy) > 64 {
		errs = append(errs, fmt.Errorf("--policy is %.80q, want 1 to 64 lower-case hex digits, as `muster node show` prints them", f.policy))
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
	var errs []error
	for line := range strings.Lines(err.Error()) {
		errs = append(errs, errors.New("--"+strings.TrimRight(line, "\n")))
	}
	return errors.Join(errs...)
}

// query returns what is asked for, or all that is wrong with it.
func (v *nodeListVerb) query() (fleet.Query, error) {
	filter, err := v.filter.parse(time.Now())
	q := fleet.Query{Filter: filter, Sort: fleet.Order(v.sort), Cursor: v.cursor}
	err = errors.Join(err, checkQuery(&q))
	if v.limit < 0 {
		err = errors.Join(err, fmt.Errorf("--limit is %d, want 0 or more", v.limit))
	}
	return q, err
}

func (v *nodeListVerb) run(ctx context.Context) error {
	q, err := v.query()
	if err != nil {
		return err
	}
	list, err := v.pages(ctx, q)
	if err != nil {
		return err
	}
	return v.print(list, func() error { return v.write(list) })
}

// pages asks for as many pages as are wanted, and returns them as one.
func (v *nodeListVerb) pages(ctx context.Context, q fleet.Query) (*fleet.Page, error) {
	list := &fleet.Page{Nodes: []fleet.Node{}}
	for {
		q.Limit = fleet.MaxLimit
		if v.limit > 0 {
			q.Limit = min(q.Limit, v.limit-len(list.Nodes))
		}
		var p fleet.Page
		if err := v.ask(ctx, http.MethodGet, "/v1/nodes?"+httpapi.NodeQuery(q).Encode(), nil, &p); err != nil {
			return nil, err
		}
		list.Nodes = append(list.Nodes, p.Nodes...)
		list.Next, list.Total, list.States, list.Unknown, list.HeardSince = p.Next, p.Total, p.States, p.Unknown, p.HeardSince
		if q.Cursor = p.Next; q.Cursor == "" || len(list.Nodes) == v.limit {
			return list, nil
		}
	}
}

func (v *nodeListVerb) write(p *fleet.Page) error {
	v.sayUnknown(p)
	if p.Total == 0 {
		v.say("no machine fits")
		return nil
	}
	var t cli.Table
	t.Add("NODE", "STATE", "SITE", "EXPIRES", "LAST HEARD OF", "CHANGED", "TOKEN ID")
	for i := range p.Nodes {
		n := &p.Nodes[i]
		t.Add(string(n.Identity), nodeState(n), or(string(n.Site), "-"), instant(n.Expires), instant(n.Seen), instant(n.Changed.Truncate(time.Second)), or(string(n.Token), "-"))
	}
	if _, err := t.WriteTo(os.Stdout); err != nil {
		return err
	}
	var states []string
	for _, s := range []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired} {
		if n := p.States[s]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	more := ""
	if p.Next != "" {
		more = fmt.Sprintf("; %d are listed, --limit 0 lists all", len(p.Nodes))
	}
	v.say("%s: %s%s", counted(p.Total, "machine", "machines"), strings.Join(states, ", "), more)
	return nil
}

// nodeState is a node's state with what there is to know beside it.
func nodeState(n *fleet.Node) string {
	s := string(n.State)
	if n.Cloned {
		s += ", cloned"
	}
	if n.Offered && n.State == provisioner.StateProvisioned {
		s += ", renewing"
	}
	return s
}

// or returns s, or what stands for nothing.
func or(s, nothing string) string {
	if s == "" {
		return nothing
	}
	return s
}
