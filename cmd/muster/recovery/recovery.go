// Package recovery implements "muster recovery": continuing with a store that has lost data.
package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/provisioner/httpapi"
)

const help = `A store that was restored from a backup, or that continues after an accepted loss, is
in recovery until 'muster recovery end':

  - a node whose certificate is not on record, and newer than the record, comes back
    with that certificate;
  - a name that is not on record needs an approval that names the key;
  - older grants and approvals are void, and older limited tokens stay frozen: see
    'muster token unfreeze'.`

const beginHelp = `Lets a provisioner that is stopped start again with a store that has lost data, in
recovery. A copy of the disk or a backup (muster restore) is better. Revocations come
back from the journal.

  muster recovery begin --accept-loss --why 'disk of prov1, no backup'
  muster recovery begin --accept-loss --config prov/provisioner.yaml`

const endHelp = `Ends the recovery. From then on, a node whose certificate is not on record is a new
node.

  muster recovery end --why 'all nodes are back'
  muster recovery end --config prov/provisioner.yaml`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("recovery", "Continue with a store that has lost data.").HelpLong(help)
	addBegin(c, all)
	end := c.Command("end", "End the recovery.").HelpLong(endHelp)
	verb.Order(end, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		return map[string]string{"recovery": "ended"}, verb.Send(ctx, o, "/v1/recovery/end", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, _ map[string]string) fmt.Stringer {
		o.Say("the recovery is over")
		return nil
	})
}

func addBegin(parent *kingpin.CmdClause, all cli.Verbs) {
	var where verb.Setup
	var keys verb.KeyFlags
	var accepted bool
	var why string
	c := parent.Command("begin", "Accept a loss and begin the recovery.").HelpLong(beginHelp)
	cli.Flag(c, "accept-loss").BoolVar(&accepted)
	cli.Flag(c, "why").StringVar(&why)
	where.AddFlags(c)
	keys.AddFlags(c)
	all.Check(c, func() error {
		if !accepted {
			return errors.New("data that is missing from the store is lost for good: " +
				"to accept that, give --accept-loss")
		}
		return nil
	})
	all[c.FullCommand()] = func(ctx context.Context) error {
		log, _ := (&cli.LogFlags{}).New(os.Stderr)
		cause := trust.Cause{By: httpapi.UserName(uint32(os.Getuid())), Why: why}
		//nolint:contextcheck // bounded by the time-out of the policy's tests
		d, err := daemon.Load(where.Config, daemon.Options{Log: log, Keys: keys.Ring(ctx)})
		if err != nil {
			return verb.OrNoSetup(where.Config, err)
		}
		begun, err := setup.AcceptLoss(ctx, d, cause)
		if err != nil {
			return verb.OrNotYours(err)
		}
		return verb.Show(&where.Output, begun, func(r *orders.Recovery) fmt.Stringer {
			where.After("start the provisioner; once all nodes are back, run `muster recovery end`")
			lost := cmp.Or(r.Lost, "nothing is known to be missing")
			return cli.Text("the store is in recovery since " + verb.Instant(r.Began) + ": " + lost + "\n")
		})
	}
}
