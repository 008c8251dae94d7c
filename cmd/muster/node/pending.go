package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// pendingFilter selects pending nodes, by flags.
type pendingFilter struct {
	verb.Filter

	approve bool // only those that wait for an approval
}

func (f *pendingFilter) addFlags(c *kingpin.CmdClause) {
	addNameFlags(c, &f.Filter)
	f.Flag(c, "address")
}

func (f *pendingFilter) hints() []string { return verb.PendingNames() }

func (f *pendingFilter) check() error {
	_, err := fleet.ParsePending(f.Values)
	return f.Flags(err)
}

func (f *pendingFilter) pending(ctx context.Context, o *verb.Operator) (*httpapi.Pending, error) {
	return verb.Get[*httpapi.Pending](ctx, o, "/v1/waiting?"+f.Encode())
}

// choose implements [selection]. The order applies to the keys in the list, not to keys that arrive later.
func (f *pendingFilter) choose(ctx context.Context, o *verb.Operator, pattern wire.Pattern, w *targets) error {
	pending, err := f.pending(ctx, o)
	if err != nil {
		return err
	}
	var chosen []*waiting.Key
	for _, k := range pending.Waiting {
		if (pattern == "" || pattern.Match(k.Identity)) && (!f.approve || k.Code == wire.CodeApprovalPending) {
			chosen = append(chosen, k)
			w.Targets = append(w.Targets, target{Node: k.Identity, Key: k.KeyHash})
		}
	}
	w.table = append(w.table, cli.NewListTable(&o.Output.Output, chosen, pendingColumns))
	return nil
}

const pendingHelp = `Lists pending nodes, the longest wait first, and what they wait for: an operator's
approval (approval_pending), the policy (deferred), or a name that belongs to another
key (identity_taken, see 'muster node grant'). A node asks again every 3 seconds,
thousands of nodes every 20. Without a request for an hour it is gone.

64 keys can wait for each address (or /64 of IPv6), 1,024 for each token, 16,384 in
all; more nodes are told that the provisioner is busy. --by-source counts the keys of
each address, and 'muster node forget' with --address or --token-id makes room.

Compare the key with that of the node before you approve it: the node's log has it.
Facts come from the node and prove nothing.

  muster node pending -o wide
  muster node pending --address 192.0.2.0/24 --fact rack=r4
  muster node pending --by-source
  muster node pending --rejected`

func addPending(parent *kingpin.CmdClause, all cli.Verbs) {
	var f pendingFilter
	var rejected, bySource bool
	c := parent.Command("pending", "List the nodes that wait for an approval.").HelpLong(pendingHelp)
	f.addFlags(c)
	cli.Flag(c, "rejected").BoolVar(&rejected)
	cli.Flag(c, "by-source").BoolVar(&bySource)
	all.Check(c, f.check)
	verb.List(c, all, f.pending, func(_ *verb.Operator, p *httpapi.Pending) verb.Shown {
		if rejected {
			return &verb.Rows[*orders.Answer]{Rows: p.Rejected, Empty: "no keys are rejected", Columns: rejectedColumns}
		}
		empty := "no nodes are pending"
		if !f.Empty() {
			empty = "no pending nodes match"
		}
		if bySource {
			return &verb.Rows[*httpapi.PendingSource]{Rows: p.Sources, Empty: empty, Columns: sourceColumns}
		}
		return &verb.Rows[*waiting.Key]{Rows: p.Waiting, Empty: empty, Columns: pendingColumns}
	})
}

var sourceColumns = []cli.Column[*httpapi.PendingSource]{
	{Title: "ADDRESS", Value: func(s *httpapi.PendingSource) any { return s.Source }},
	{Title: "KEYS", Value: func(s *httpapi.PendingSource) any { return s.Keys }},
	{Title: "TOKENS", Value: func(s *httpapi.PendingSource) any { return len(s.Tokens) }},
	{Title: "TOKEN IDS", Wide: true, Value: func(s *httpapi.PendingSource) any { return fmt.Sprint(s.Tokens) }},
}

var rejectedColumns = []cli.Column[*orders.Answer]{
	{Title: "NODE", Value: func(a *orders.Answer) any { return a.Identity }},
	{Title: "KEY", Value: func(a *orders.Answer) any { return verb.Short(a.KeyHash) }},
	{Title: "REJECTED", Value: func(a *orders.Answer) any { return a.At }},
	{Title: "BY", Value: func(a *orders.Answer) any { return a.By }},
	{Title: "WHY", Value: func(a *orders.Answer) any { return a.Why }},
	{Title: "FINGERPRINT", Wide: true, Value: func(a *orders.Answer) any { return a.KeyHash }},
}

var pendingColumns = []cli.Column[*waiting.Key]{
	{Title: "NODE", Value: func(w *waiting.Key) any { return w.Identity }},
	{Title: "KEY", Value: func(w *waiting.Key) any { return verb.Short(w.KeyHash) }},
	{Title: "WAITS FOR", Value: func(w *waiting.Key) any { return w.Code }},
	{Title: "STATE", Value: func(w *waiting.Key) any {
		if w.Gone {
			return "gone"
		}
		return "waiting"
	}},
	{Title: "SINCE", Value: func(w *waiting.Key) any { return w.Since }},
	{Title: "REQUESTS", Value: func(w *waiting.Key) any { return w.Asked }},
	{Title: "LAST REQUEST", Value: func(w *waiting.Key) any { return w.LastAsked }},
	{Title: "ADDRESS", Value: func(w *waiting.Key) any { return w.Source }},
	{Title: "SITE", Value: func(w *waiting.Key) any { return w.Site }},
	{Title: "TOKEN ID", Value: func(w *waiting.Key) any { return w.Token }},
	{Title: "POLICY SAYS", Wide: true, Value: func(w *waiting.Key) any { return w.Reasons }},
	{Title: "SIGNER", Wide: true, Value: func(w *waiting.Key) any { return w.SignerName }},
	{Title: "KEY TYPE", Wide: true, Value: func(w *waiting.Key) any { return w.KeyType }},
	{Title: "FINGERPRINT", Wide: true, Value: func(w *waiting.Key) any { return w.KeyHash }},
	{Title: "OTHER NAMES", Wide: true, Value: func(w *waiting.Key) any { return w.Names }},
	{Title: "FACTS", Wide: true, Value: func(w *waiting.Key) any {
		var facts []string
		for _, name := range slices.Sorted(maps.Keys(w.Facts)) {
			facts = append(facts, name+"="+w.Facts[name])
		}
		return facts
	}},
}
