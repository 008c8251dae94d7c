package node

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
)

const approveHelp = `Admits a pending node, once, with the key that is pending. The node asks again by
itself and is admitted within seconds. Another key with that name is not approved. An
approval that can admit no key is refused, as for a name that is revoked or that
belongs to another key. --expires is at most 7d.

  muster node approve web1.example.net --why 'rack 4, ticket 17'
  muster node approve --match 'web*.example.net' --fact rack=r4`

const rejectHelp = `Keeps the key of a pending node out, regardless of policy, allow-list and token,
until 'muster node approve' or 'muster node forget' names that key. Another key with
that name may still enroll.

  muster node reject web1.example.net --why 'not ours'
  muster node reject --address 192.0.2.0/24 --why 'the guest network'`

const forgetHelp = `Removes a node from the pending list, with its unused approval or its rejection. If
the node asks again, it is pending again. If no key is pending under the name, its
rejected key is forgotten.

  muster node forget web1.example.net
  muster node forget --address 192.0.2.7 --why 'made-up names'
  muster node forget web1.example.net --fingerprint 9f86d081`

// verdict is "muster node approve", "reject" or "forget".
type verdict struct {
	order
	pending pendingFilter
	done    string
	key     string
	ttl     time.Duration
}

func addVerdicts(parent *kingpin.CmdClause, all cli.Verbs) {
	addVerdict(parent, all, "approve", "Admit a pending node.", approveHelp, "is approved")
	addVerdict(parent, all, "reject", "Keep a pending node out.", rejectHelp, "is rejected")
	addVerdict(parent, all, "forget", "Remove a node from the pending list, with its approval or rejection.",
		forgetHelp, "is forgotten")
}

func addVerdict(parent *kingpin.CmdClause, all cli.Verbs, name, help, long, done string) {
	v := &verdict{order: order{verb: name}, done: done}
	v.pending.approve = name == "approve"
	v.selection = &v.pending
	c := parent.Command(name, help).HelpLong(long + orderHelp)
	cli.Parse(cli.Flag(c, "fingerprint"), &v.key, parseFingerprint)
	if v.pending.approve {
		cli.Until(cli.Flag(c, "expires").Default("24h"), &v.ttl, time.Minute, orders.MaxApprovalTTL)
	}
	v.addFlags(c, all)
	all.Check(c, func() error { return v.checkKey(v.key) })
	all[c.FullCommand()] = v.run
}

func parseFingerprint(text string) (string, error) {
	hash := wire.FoldHash(text)
	return hash, operate.CheckKeyPrefix(hash)
}

// run gives the verdict. Listed keys are named by fingerprint, so that it does not lift a later rejection.
func (v *verdict) run(ctx context.Context) error {
	var last atomic.Pointer[orders.Answer]
	return v.order.run(ctx, func(ctx context.Context, _ *targets, t target) error {
		a, err := verb.Post[*orders.Answer](ctx, &v.Operator, pathOf(t.Node, "/"+v.verb), httpapi.NewVerdict{
			Key:     httpapi.Limit(cmp.Or(t.Key, v.key)),
			TTL:     v.ttl,
			Why:     v.Why,
			Waiting: t.Key != "" && v.verb != "reject",
		})
		if err == nil {
			last.Store(a)
		}
		return err
	}, func() string {
		done, a := v.done, last.Load()
		if len(v.names) == 1 {
			done += ", with the key " + verb.Short(a.KeyHash)
		}
		if v.pending.approve {
			done += ": it enrolls with its next request, until " + verb.Instant(a.ExpiresAt)
		}
		return done
	})
}
