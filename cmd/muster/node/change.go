package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/waiting"
)

// live are the states that orders choose unless a filter names states.
var live = []string{string(provisioner.StateEnrolled), string(provisioner.StateProvisioned)}

const revokeHelp = `Drops the connections of a node within a second, puts its certificates on the CRL,
and issues no other certificate, whatever token the node has. 'muster node retire'
ends a revocation.

  muster node revoke web1.example.net --why 'stolen laptop'
  muster node revoke web1.example.net web2.example.net --why 'theft at ams1'`

const retireHelp = `Revokes the certificates of a node and frees its name for any key: the next node with
this name is new. Use it for machines that are gone, and for a revoked node that may
come back. Filters choose revoked nodes with --state revoked only, because a stolen
machine could enroll again. --awaiting is for a Puppet agent whose machine is built
again: its name is kept until a machine comes with a one-time token, a grant or an
approval; the same verb without --awaiting frees it.

  muster node retire web1.example.net --why scrapped
  muster node retire build-7.example.net --awaiting
  muster node retire --unseen 30d  # scaled down a month ago`

func addChanges(parent *kingpin.CmdClause, all cli.Verbs) {
	addChange(parent.Command("revoke", "Keep a node out for good.").HelpLong(revokeHelp+orderHelp), all,
		"is revoked: its connections are dropped, and it stays out until it is retired")
	addChange(parent.Command("retire", "Free the name of a node that is gone.").HelpLong(retireHelp+orderHelp), all,
		"is retired: the name is free")
}

func addChange(c *kingpin.CmdClause, all cli.Verbs, done string) {
	// Twice the default alive_interval, so that --unseen chooses no running node.
	v := &order{verb: c.Model().Name, selection: &filter{minUnseen: time.Hour}}
	v.addFlags(c, all)
	var await bool
	if v.verb == "retire" {
		cli.Flag(c, "awaiting").BoolVar(&await)
	}
	all[c.FullCommand()] = func(ctx context.Context) error {
		if await {
			done = "is retired: the name waits for a one-time token, a grant or an approval"
		}
		return v.run(ctx, func(ctx context.Context, w *targets, t target) error {
			change := httpapi.Change{Why: v.Why, SeenBefore: w.SeenBefore, Precondition: t.Seen, Awaiting: await}
			if v.verb == "revoke" { // a renewal after the choice does not prevent a revocation
				change.Revision = 0
			}
			return verb.Send(ctx, &v.Operator, pathOf(t.Node, "/"+v.verb), change)
		}, func() string { return done })
	}
}

const grantHelp = `Lets another key take a name, once: for a machine that was reinstalled and has lost
its key. While keys wait for the name ('muster node pending'), the grant must name one
with --fingerprint, or the verb shows them and asks. Compare it with the key in the
log of the right machine first. If no key waits, --fingerprint needs all 64 digits;
without it, the next key that asks takes the name. The old key loses the name when the
node with the new key has confirmed. --expires is at most 1d.
With --one-time, the verb prints a one-time token. A Puppet agent that shows it as
challengePassword takes the name with any key, once, even if the name is new.

  muster node grant web1.example.net --fingerprint 9f86d081 --why 'ticket 17'
  muster node grant web1.example.net --expires 15m  # before the machine asks
  muster node grant build-7.example.net --one-time`

// grant is "muster node grant".
type grant struct {
	order
	key string
	ttl time.Duration

	oneTime bool
}

func addGrant(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &grant{order: order{verb: "grant", selection: &filter{}}}
	c := parent.Command("grant", "Let another key take a name, once.").HelpLong(grantHelp + orderHelp)
	cli.Parse(cli.Flag(c, "fingerprint"), &v.key, parseFingerprint)
	cli.Until(cli.Flag(c, "expires").Default("1h"), &v.ttl, time.Minute, operate.MaxGrantTTL)
	cli.Flag(c, "one-time").BoolVar(&v.oneTime)
	v.addFlags(c, all)
	all.Check(c, func() error { return v.checkKey(v.key) })
	all.Check(c, func() error {
		if v.oneTime && (v.key != "" || len(v.names) != 1 || len(v.given) != 1) {
			return errors.New("--one-time is for one node, and without --fingerprint: give one name")
		}
		return nil
	})
	all[c.FullCommand()] = v.run
}

// checkKey refuses --fingerprint for several nodes.
func (v *order) checkKey(key string) error {
	if key == "" || len(v.names) == 1 && len(v.given) == 1 {
		return nil
	}
	return errors.New("--fingerprint is for one node: give one name")
}

func (v *grant) run(ctx context.Context) error {
	if err := v.askKey(ctx); err != nil {
		return err
	}
	var until atomic.Pointer[time.Time]
	return v.order.run(ctx, func(ctx context.Context, w *targets, t target) error {
		order := httpapi.NewGrant{
			Precondition: t.Seen,
			ID:           w.ID,
			KeyHash:      httpapi.Limit(v.key),
			TTL:          v.ttl,
			OneTime:      v.oneTime,
			Why:          v.Why,
		}
		if v.oneTime {
			order.ID = ""
		}
		g, err := verb.Post[httpapi.NewlyGranted](ctx, &v.Operator, pathOf(t.Node, "/grant"), order)
		if err == nil {
			until.Store(&g.ExpiresAt)
		}
		if v.oneTime {
			v.token = g.Token
		}
		return err
	}, func() string {
		by := "next node that requests the name with a key of its own"
		if v.key != "" {
			by = "node with the key " + verb.Short(v.key)
		} else if v.oneTime {
			by = "Puppet agent that has this token as challengePassword"
		}
		return fmt.Sprintf("may be taken over by the %s, until %s", by, verb.Instant(*until.Load()))
	})
}

// askKey has the operator choose a waiting key. Without a terminal, the provisioner refuses the grant and lists the
// keys.
func (v *grant) askKey(ctx context.Context) error {
	if v.key != "" || v.oneTime || v.DryRun || len(v.names) != 1 || !cli.IsTerminal(os.Stdin) {
		return nil
	}
	f := pendingFilter{Filter: verb.Filter{Values: url.Values{"match": {string(v.names[0])}}}}
	pending, err := f.pending(ctx, &v.Operator)
	if err != nil || len(pending.Waiting) == 0 {
		return err
	}
	if _, err := fmt.Fprint(os.Stderr, cli.NewListTable(&v.Output.Output, pending.Waiting, grantColumns)); err != nil {
		return err
	}
	v.key, err = verb.Ask(ctx, fmt.Sprintf("Which key may take %s? Give 8 digits or more from the right machine's log:",
		v.names[0]))
	switch {
	case err != nil:
		return err
	case v.key == "":
		return verb.ErrNo
	}
	v.key, err = parseFingerprint(v.key)
	return err
}

var grantColumns = []cli.Column[*waiting.Key]{
	{Title: "KEY", Value: func(w *waiting.Key) any { return verb.Short(w.KeyHash) }},
	{Title: "ADDRESS", Value: func(w *waiting.Key) any { return w.Source }},
	{Title: "SINCE", Value: func(w *waiting.Key) any { return w.Since }},
	{Title: "LAST REQUEST", Value: func(w *waiting.Key) any { return w.LastAsked }},
}
