// Package provisioner implements "muster provisioner": setting up and running the central daemon.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/keyfile"
	"muster/internal/sdnotify"
	"muster/provisioner/httpapi"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("provisioner", "Set up and run a provisioner.").
		HelpLong("init makes everything that a provisioner needs, run serves. The README shows both in\nten minutes.")
	addInit(c, all)
	addRun(c, all)
	addAcceptClock(c, all)
}

// run holds the flags of "muster provisioner run".
type run struct {
	config string
	check  bool
	keys   verb.KeyFlags
	log    cli.LogFlags
}

const runHelp = `Serves until SIGTERM, SIGHUP or Ctrl-C. It then takes no further request, finishes
those in hand, and stops its broker. A second signal ends it at once, and nothing
that was acknowledged is lost. All settings are in the configuration file; 'muster
provisioner init' writes one with every key explained.

  muster provisioner run --config prov/provisioner.yaml
  muster provisioner run --validate  # is the configuration right?

Exits with 0 after a signal, or with --validate if everything is right. Exits with 1
if a restart may help, as after a full disk: a service manager starts it again. Exits
with 78 if only an operator helps: a wrong configuration, a damaged store or journal,
the store of another installation. Exits with 2 if the command line is wrong.`

func addRun(parent *kingpin.CmdClause, all cli.Verbs) {
	r := &run{}
	c := parent.Command("run", "Run the provisioner with its broker.").HelpLong(runHelp)
	verb.Config(c, &r.config)
	cli.Flag(c, "validate").BoolVar(&r.check)
	r.keys.AddFlags(c)
	r.log.Add(c)
	all[c.FullCommand()] = cli.CleansUp(r.run) // the provisioner runs on if the reader of its log ends
}

func (r *run) run(ctx context.Context) error {
	log, _ := r.log.New(os.Stderr)
	manager := sdnotify.New(log)
	//nolint:contextcheck // bounded by the time-out of the policy's tests
	d, err := daemon.Load(r.config, daemon.Options{
		Version: cli.Version(),
		Log:     log,
		Keys:    r.keys.Ring(ctx),
		Alive:   manager.Alive,
	})
	if errors.Is(err, keyfile.ErrPassphrase) || errors.Is(err, context.Canceled) {
		return err // a restart may help: the configuration may be right
	}
	if err != nil {
		if err = verb.OrNoSetup(r.config, fmt.Errorf("configuration of the provisioner:\n%w", err)); r.check {
			return err
		}
		return cli.NoRestart(err)
	}
	if r.check {
		if ends := d.EndsSoon(); ends != nil {
			for line := range strings.SplitSeq(ends.Error(), "\n") {
				verb.Say("warning: %s", line)
			}
		}
		return d.Usable()
	}
	tuneGC()
	defer context.AfterFunc(ctx, manager.Stopping)()
	defer manager.Stopping() // the other one may come too late
	err = d.Run(ctx, manager.Ready)
	if daemon.NeedsOperator(err) {
		return cli.NoRestart(err)
	}
	return err
}

// tuneGC collects garbage less often than Go's default, within the memory limit of the control group. GOGC and
// GOMEMLIMIT override it.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	_, _ = memlimit.Set() // an error means that no limit was found
}

// gcPercent suits the 40 MB heap of a busy provisioner with few nodes. Enrolling a node makes 130 kB of garbage and
// keeps 2 kB.
const gcPercent = 180

const acceptClockHelp = `A provisioner whose clock is behind the newest time on record issues nothing, since a
clock that goes back would make expired tokens valid. If the clock is right and the
record is ahead, because the clock was once wrong, this command says so.

  muster provisioner accept-clock --why 'the clock was a year ahead on Monday'
  muster provisioner accept-clock --config prov/provisioner.yaml`

func addAcceptClock(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("accept-clock", "Trust the clock over the newest time on record.").HelpLong(acceptClockHelp)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]bool, error) {
		return map[string]bool{"accepted": true}, verb.Send(ctx, o, "/v1/clock/accept", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, _ map[string]bool) fmt.Stringer {
		o.Say("the clock is accepted")
		return nil
	})
}
