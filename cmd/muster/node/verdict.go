package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const approveHelp = `Lets the machine in that waits under this name: with its next try, a few seconds
later, once, and with the key that waits. Another machine with that name is not
approved. With --all or with filters, all machines that wait for an approval and fit: it
shows them, and asks unless --yes. A key that was rejected meanwhile stays rejected. If
an approval would admit no key, since the name is revoked or another key's, it is refused.

  muster node approve web1.example.net --why 'rack 4, ticket 17'
  muster node approve --match 'web*.example.net' --address 192.0.2.0/24 --fact rack=r4`

const rejectHelp = `Keeps the machine that waits under this name out, whatever policy, allow-list
and tokens say, until 'muster node approve' or 'muster node forget' names its key.
Another machine with that name may still come in.

  muster node reject web1.example.net --why 'not ours'
  muster node reject --address 192.0.2.0/24 --why 'the guest network'`

const forgetHelp = `Takes a machine off the list of those that wait, and with it what was said of its
key: an approval that it has not used, or a rejection. If it asks again it waits
again. If no key waits under the name, its rejected key is forgotten.

  muster node forget web1.example.net
  muster node forget web1.example.net --fingerprint 9f86d081`

// verdict is "muster node approve", "reject" or "forget".
type verdict struct {
	verb.Operator
	httpapi.WaitingFilter
	verb, done string
	identity   wire.Identity
	key        string
	ttl        time.Duration
	all, yes   bool
}

func addVerdicts(parent *kingpin.CmdClause, all cli.Verbs) {
	addVerdict(parent, all, "approve", "Let a machine in that waits.", approveHelp, "approved")
	addVerdict(parent, all, "reject", "Keep a machine out that waits.", rejectHelp, "rejected")
	addVerdict(parent, all, "forget", "Take a machine off the list of those that wait.", forgetHelp, "forgotten")
}

func addVerdict(parent *kingpin.CmdClause, all cli.Verbs, name, help, long, done string) {
	v := &verdict{verb: name, done: done}
	c := parent.Command(name, help).HelpLong(long)
	cli.Arg(c.Arg("node", "Name of the node.").HintAction(verb.PendingNames), &v.identity, wire.ParseIdentity)
	cli.Parse(cli.Flag(c, "fingerprint"), &v.key, cli.Checked(operate.CheckKeyPrefix))
	if name == "approve" {
		cli.Until(cli.Flag(c, "expires").Default("24h"), &v.ttl, time.Minute, orders.MaxApprovalTTL)
	}
	cli.Flag(c, "all").BoolVar(&v.all)
	addWaitingFlags(c, &v.WaitingFilter)
	cli.Flag(c, "yes").BoolVar(&v.yes)
	v.AddChangeFlags(c, all)
	all.Check(c, v.check)
	all[c.FullCommand()] = v.run
}

// many reports whether the verdict is about all that a filter selects.
func (v *verdict) many() bool { return v.all || !v.IsZero() }

// check returns all that is wrong with how the flags go together.
func (v *verdict) check() error {
	_, err := v.Compile()
	err = verb.Flags(err)
	switch {
	case v.many() && (v.identity != "" || v.key != ""):
		err = errors.Join(err, errors.New("a name or --fingerprint is about one machine, --all and filters are about many: give one or the other"))
	case !v.many() && v.identity == "":
		err = errors.Join(err, errors.New("no name: give one, or --all, or a filter: --match, --prefix, --site, --token-id, --address or --fact"))
	}
	return err
}

func (v *verdict) run(ctx context.Context) error {
	if v.many() {
		return v.runMany(ctx)
	}
	answer, err := v.give(ctx, v.identity, httpapi.NewVerdict{Key: httpapi.Limit(v.key), TTL: v.ttl, Why: v.Why})
	if err != nil {
		return err
	}
	return verb.ShowDone(&v.Output, answer, func(a *orders.Answer) io.WriterTo {
		next := ""
		if v.verb == "approve" {
			next = ", and gets in with its next try, until " + verb.Instant(a.ExpiresAt)
		}
		v.Say("%s with key %s is %s%s", a.Identity, verb.Short(a.KeyHash), v.done, next)
		return nil
	})
}

// give gives the verdict about one key.
func (v *verdict) give(ctx context.Context, id wire.Identity, n httpapi.NewVerdict) (*orders.Answer, error) {
	return verb.Post[*orders.Answer](ctx, &v.Operator, pathOf(id, "/"+v.verb), n)
}

// runMany gives the verdict about all that are meant, by the keys that were
// shown: a machine that comes meanwhile is not among them, nor is a rejection of
// meanwhile lifted. To run it again is harmless: a machine that is in or rejected no longer waits.
func (v *verdict) runMany(ctx context.Context) error {
	pending, err := pendingKeys(ctx, &v.Operator, &v.WaitingFilter)
	if err != nil {
		return err
	}
	var meant []*waiting.Key
	for _, w := range pending.Waiting {
		if v.verb != "approve" || w.Code == wire.CodeApprovalPending {
			meant = append(meant, w)
		}
	}
	if len(meant) == 0 {
		return verb.Show(&v.Output, []*orders.Answer{}, func([]*orders.Answer) io.WriterTo {
			v.Say("no machines that fit are waiting")
			return nil
		})
	}
	if !v.yes {
		// Not on standard output, which is for what was done.
		if _, err := waitingTable(meant).WriteTo(os.Stderr); err != nil {
			return err
		}
		if err := agree(ctx, v.verb, verb.Machines(len(meant))); err != nil {
			return err
		}
	}
	done, err := v.giveAll(ctx, meant)
	return errors.Join(err, verb.ShowDone(&v.Output, done, func([]*orders.Answer) io.WriterTo {
		if len(done) > 0 { // else it is said what was in the way of each
			v.Say("%s %s", verb.Counted(len(done), "machine is", "machines are"), v.done)
		}
		return nil
	}))
}

// giveAll gives the verdict about each, ten at once, and stops once more than ten have failed.
func (v *verdict) giveAll(ctx context.Context, meant []*waiting.Key) ([]*orders.Answer, error) {
	answers := make([]*orders.Answer, len(meant))
	order := httpapi.NewVerdict{TTL: v.ttl, Why: v.Why, Waiting: v.verb != "reject"}
	many := batch{size: 10, maxFailures: 10}
	outcomes := many.run(ctx, v.verb, len(meant), func(ctx context.Context, i int) (err error) {
		order := order
		order.Key = httpapi.Limit(meant[i].KeyHash)
		answers[i], err = v.give(ctx, meant[i].Identity, order)
		return err
	})
	done := slices.DeleteFunc(answers, func(a *orders.Answer) bool { return a == nil })
	left := 0
	var unanswered error // the same for each
	var errs []error
	for _, err := range outcomes {
		switch {
		case errors.Is(err, errLeft):
			left++
		case errors.Is(err, httpapi.ErrNotServing):
			left++
			unanswered = err
		default:
			errs = append(errs, err)
		}
	}
	if left > 0 {
		errs = append(errs, unanswered, fmt.Errorf("%s: run this again", verb.Counted(left, "machine was not tried", "machines were not tried")))
	}
	return done, errors.Join(errs...)
}
