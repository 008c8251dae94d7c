package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// waitingFilter selects those who wait.
type waitingFilter struct{ httpapi.WaitingFilter }

func (f *waitingFilter) add(c *kingpin.CmdClause) {
	c.Flag("prefix", "Only names that begin so.").PlaceHolder("TEXT").StringVar(&f.Prefix)
	c.Flag("match", "Only names that fit, label by label, as 'web*.example.net'; may be repeated.").PlaceHolder("GLOB").StringsVar(&f.Names)
	c.Flag("site", "Only machines that came to brokers of this site.").PlaceHolder("NAME").StringVar(&f.Site)
	c.Flag("token", "Only machines that presented this token, by its id or the first 8 digits or more.").PlaceHolder("ID").StringVar(&f.Token)
	c.Flag("from", "Only machines of this address, or range as 192.0.2.0/24.").PlaceHolder("ADDRESS").StringVar(&f.From)
	c.Flag("fact", "Only machines that presented this fact, of those that --details shows; * in VALUE is any text. May be repeated: all must fit.").
		PlaceHolder("NAME=VALUE").StringsVar(&f.Facts)
}

// check returns what is wrong with the filter, one error a mistake.
func (f *waitingFilter) check() []error {
	_, err := f.Compile()
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return several.Unwrap()
	}
	return nil
}

// list returns who waits and is meant.
func (f *waitingFilter) list(ctx context.Context, o *operator) (*httpapi.Pending, error) {
	var pending httpapi.Pending
	return &pending, o.ask(ctx, http.MethodGet, "/v1/waiting?"+f.Query().Encode(), nil, &pending)
}

// nodePendingVerb is "muster node pending".
type nodePendingVerb struct {
	operator
	waitingFilter
	details, rejected bool
}

const nodePendingHelp = `Lists the machines that wait, the longest first, with what they presented: for an
operator's approval (approval_pending), until the policy no longer puts them off
(deferred), or for a name that another key has (identity_taken, see 'muster node
grant'). A machine asks every 3 seconds, of thousands every 20. Compare the key with what
'openssl pkey -in private.pem -pubout -outform DER | sha256sum' says on the machine. Facts
are the machine's own word.

  muster node pending --details
  muster node pending --from 192.0.2.0/24 --fact rack=r4
  muster node pending --rejected`

func addNodePending(parent *kingpin.CmdClause, all verbs) {
	v := &nodePendingVerb{}
	c := parent.Command("pending", "List the machines that wait.").HelpLong(nodePendingHelp)
	v.waitingFilter.add(c)
	c.Flag("details", "All that is known of each, facts too.").BoolVar(&v.details)
	c.Flag("rejected", "List the keys that were rejected instead.").BoolVar(&v.rejected)
	v.operator.add(c, all)
	all.Check(c, func() error { return errors.Join(v.check()...) })
	all[c.FullCommand()] = v.run
}

func (v *nodePendingVerb) run(ctx context.Context) error {
	pending, err := v.list(ctx, &v.operator)
	if err != nil {
		return err
	}
	return v.print(pending, func() error {
		switch {
		case v.rejected:
			return v.writeRejected(pending.Rejected)
		case len(pending.Waiting) == 0 && len(v.Query()) > 0:
			v.say("nobody of those waits")
			return nil
		case len(pending.Waiting) == 0:
			v.say("nobody waits")
			return nil
		case v.details:
			return writeWaiters(pending.Waiting)
		}
		return writeWaiting(os.Stdout, pending.Waiting)
	})
}

func (v *nodePendingVerb) writeRejected(rejected []*provisioner.Answer) error {
	if len(rejected) == 0 {
		v.say("nobody was rejected")
		return nil
	}
	var t cli.Table
	t.Add("NODE", "KEY", "REJECTED", "BY", "WHY")
	for _, a := range rejected {
		t.Add(string(a.Identity), short(a.KeyHash), instant(a.At), a.By, a.Why)
	}
	_, err := t.WriteTo(os.Stdout)
	return err
}

// writeWaiting writes who waits as a table.
func writeWaiting(to io.Writer, waiting []*provisioner.Waiter) error {
	var t cli.Table
	t.Add("NODE", "KEY", "WAITS FOR", "SINCE", "ASKED", "FROM", "SITE", "TOKEN ID")
	for _, w := range waiting {
		t.Add(string(w.Identity), short(w.KeyHash), string(w.Code), instant(w.Since), fmt.Sprint(w.Asked), or(w.Source, "-"), or(string(w.Site), "-"), string(w.Token))
	}
	_, err := t.WriteTo(to)
	return err
}

// writeWaiters prints all that is known of who waits.
func writeWaiters(waiting []*provisioner.Waiter) error {
	for i, w := range waiting {
		if i > 0 {
			fmt.Println()
		}
		var l cli.Labels
		l.Add("Node", string(w.Identity))
		l.Addf("Key SHA-256", "%s (%s)", w.KeyHash, w.KeyType)
		l.Addf("Waits for", "%s: %s", w.Code, wire.MeaningOf(w.Code).Public)
		if len(w.Reasons) > 0 {
			l.Add("Policy says", strings.Join(w.Reasons, "\n"))
		}
		l.Addf("Asked", "%s, first %s, last %s", counted(w.Asked, "time", "times"), instant(w.Since), instant(w.LastAsked))
		l.Addf("From", "%s, site %s", w.Source, or(string(w.Site), "-"))
		l.Addf("Token", "%s, signed by %s", w.Token, w.SignerName)
		if len(w.Names) > 0 {
			l.Add("Other names it wants", strings.Join(w.Names, "\n"))
		}
		for _, name := range slices.Sorted(maps.Keys(w.Facts)) {
			l.Addf("Fact", "%s = %s", name, w.Facts[name])
		}
		if _, err := l.WriteTo(os.Stdout); err != nil {
			return err
		}
	}
	return nil
}
