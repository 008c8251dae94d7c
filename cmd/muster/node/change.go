package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// live are the states that orders choose unless a filter names states.
var live = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}

const revokeHelp = `Drops the connections of a node within a second, puts its certificates on the CRL,
and issues no other certificate, whatever token the node has. 'muster node retire'
ends a revocation.

  muster node revoke web1.example.net --why 'stolen laptop'
  muster node revoke web1.example.net web2.example.net --why 'theft at ams1'`

const retireHelp = `Revokes the certificates of a node and frees its name for any key: the next node with
this name is new. Use it for machines that are gone, and for a revoked node that may
come back. Filters choose revoked nodes with --state revoked only, because a stolen
machine could enroll again.

  muster node retire web1.example.net --why scrapped
  muster node retire --unseen 30d  # scaled down a month ago`

func addChanges(parent *kingpin.CmdClause, all cli.Verbs) {
	addChange(parent.Command("revoke", "Keep a node out for good.").HelpLong(revokeHelp+orderHelp), all,
		"is revoked: its connections are dropped, and it stays out until it is retired")
	addChange(parent.Command("retire", "Free the name of a node that is gone.").HelpLong(retireHelp+orderHelp), all,
		"is retired: the name is free")
}

// addChange adds a verb without flags of its own.
func addChange(c *kingpin.CmdClause, all cli.Verbs, done string) {
	// Twice the default alive_interval, so that --unseen chooses no running node.
	v := &order{verb: c.Model().Name, selection: &filter{minUnseen: time.Hour}}
	v.addFlags(c, all)
	all[c.FullCommand()] = func(ctx context.Context) error {
		return v.run(ctx, func(ctx context.Context, w *targets, t target) error {
			change := httpapi.Change{Why: v.Why, SeenBefore: w.SeenBefore, Precondition: t.Seen}
			if v.verb == "revoke" { // a renewal after the choice does not prevent a revocation
				change.Revision = 0
			}
			return verb.Send(ctx, &v.Operator, pathOf(t.Node, "/"+v.verb), change)
		}, func() string { return done })
	}
}

const grantHelp = `Lets another key take a name, once: for a machine that was reinstalled and has lost
its key. With --fingerprint, only that key may take it: 64 hex digits, as 'muster
node pending -o wide' shows them. Without it, the next key that asks takes it. The
old key loses the name when the node with the new key has confirmed. --expires is at
most 1d.

  muster node grant web1.example.net --why 'reinstalled, ticket 17'
  muster node grant web1.example.net --expires 15m \
    --fingerprint 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`

// grant is "muster node grant".
type grant struct {
	order
	key string
	ttl time.Duration
}

func addGrant(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &grant{order: order{verb: "grant", selection: &filter{}}}
	c := parent.Command("grant", "Let another key take a name, once.").HelpLong(grantHelp + orderHelp)
	cli.Parse(cli.Flag(c, "fingerprint"), &v.key, cli.Checked(trust.CheckKeyHash))
	cli.Until(cli.Flag(c, "expires").Default("1h"), &v.ttl, time.Minute, operate.MaxGrantTTL)
	v.addFlags(c, all)
	all.Check(c, func() error { return v.checkKey(v.key) })
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
	var until atomic.Pointer[time.Time]
	return v.order.run(ctx, func(ctx context.Context, w *targets, t target) error {
		g, err := verb.Post[orders.Grant](ctx, &v.Operator, pathOf(t.Node, "/grant"), httpapi.NewGrant{
			Precondition: t.Seen,
			ID:           w.ID,
			KeyHash:      httpapi.Limit(v.key),
			TTL:          v.ttl,
			Why:          v.Why,
		})
		if err == nil {
			until.Store(&g.ExpiresAt)
		}
		return err
	}, func() string {
		by := "next node that requests the name with a key of its own"
		if v.key != "" {
			by = "node with the key " + verb.Short(v.key)
		}
		return fmt.Sprintf("may be taken over by the %s, until %s", by, verb.Instant(*until.Load()))
	})
}
