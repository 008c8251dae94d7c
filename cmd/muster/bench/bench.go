// Package bench implements "muster bench": how fast a provisioner is on this machine.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/bench"
	"muster/internal/cli"
	"muster/provisioner/choria"
)

// flags holds the flags of "muster bench".
type flags struct {
	verb.Output
	cfg         bench.Config
	connections string
	applied     bool
	appliedSet  bool
	choria      bool
	protocolV2  bool
}

const help = `Starts a provisioner in a process and a temporary directory of its own, with every
acknowledged write on disk, and enrolls simulated nodes. Each node has its own key
and certificate request, made before the clock starts; every certificate is checked.
Everything is removed at the end.

In the first wave nodes only get certificates: nodes enrolled per minute. In the
second wave as many other nodes also confirm: nodes provisioned per minute, and all
other figures. --no-applied runs the first wave only, --applied the second only.

  muster bench                                  # shared connections
  muster bench --connections per-node --sealed  # like a booting fleet
  muster bench --rate 1500 --nodes 45000        # latency at a given load
  muster bench --applied --stored 1000000       # with a million records
  muster bench --applied --idle 10000           # with 10,000 connected nodes
  muster bench --choria                         # Choria servers, at the gateway
  muster bench --choria --token-file FILE       # at the provisioner that a token names
  muster bench --puppet                         # Puppet agents
  muster bench --puppet --connections per-node  # each over a connection of its own
  muster bench --puppet --url URL --login FILE  # at another Puppet authority
  muster bench --service-certificates           # requested by connected nodes

With --rate, nodes start at that rate, and latency counts from the planned start.
The answer 'busy' of the provisioner is honored and counted, and is no failure.

Exits with 0 if all nodes were enrolled, 1 if not, 2 if the command line is wrong.`

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	v := &flags{}
	c := app.Command("bench", "Measure how fast this machine enrolls nodes.").HelpLong(help)
	cli.Int(cli.Flag(c, "nodes").Default("20000"), &v.cfg.Nodes)
	cli.Enum(cli.Flag(c, "connections").Default("shared"), &v.connections, "per-node", "shared")
	cli.Flag(c, "tls").BoolVar(&v.cfg.Connection.TLS)
	cli.Flag(c, "sealed").BoolVar(&v.cfg.Connection.Sealed)
	cli.Enum(cli.Flag(c, "key-type").Default("rsa4096"), &v.cfg.Token.Key, "rsa4096", "ed25519")
	cli.Int(cli.Flag(c, "uses").Default("0"), &v.cfg.Token.Uses)
	cli.Flag(c, "applied").IsSetByUser(&v.appliedSet).BoolVar(&v.applied)
	cli.Int(cli.Flag(c, "rate").Default("0"), &v.cfg.Rate)
	cli.Int(cli.Flag(c, "stored").Default("0"), &v.cfg.Stored)
	cli.Int(cli.Flag(c, "idle").Default("0"), &v.cfg.Idle)
	cli.Int(cli.Flag(c, "provisioners").Default("0"), &v.cfg.Provisioners)
	cli.Flag(c, "choria").BoolVar(&v.choria)
	cli.Flag(c, "protocol-v2").BoolVar(&v.protocolV2)
	cli.Flag(c, "token-file").StringVar(&v.cfg.Token.File)
	cli.Flag(c, "puppet").BoolVar(&v.cfg.Puppet.Enabled)
	cli.Flag(c, "url").StringVar(&v.cfg.Puppet.URL)
	cli.Flag(c, "login").StringVar(&v.cfg.Puppet.Login)
	cli.Flag(c, "service-certificates").BoolVar(&v.cfg.Services)
	cli.Int(cli.Flag(c, "facts-bytes").Default("0"), &v.cfg.FactsBytes)
	v.AddFlags(c)
	all.Check(c, func() error {
		v.complete()
		if v.protocolV2 && !v.choria {
			return errors.New("--protocol-v2 needs --choria")
		}
		return v.cfg.Check()
	})
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

// complete sets the parts of the configuration that depend on several flags.
func (v *flags) complete() {
	v.cfg.Connection.Shared = v.connections == "shared"
	v.cfg.Waves = []bench.Wave{bench.WaveEnroll, bench.WaveApplied}
	if v.appliedSet && !v.applied {
		v.cfg.Waves = v.cfg.Waves[:1]
	} else if v.appliedSet || v.cfg.Rate > 0 {
		v.cfg.Waves = v.cfg.Waves[1:]
	}
	if v.choria {
		v.cfg.Choria, v.cfg.Connection.Shared = choria.V1, false
		v.cfg.Waves = []bench.Wave{bench.WaveApplied}
	}
	if v.protocolV2 {
		v.cfg.Choria = choria.V2
	}
	if v.cfg.Puppet.Enabled {
		v.cfg.Puppet.Runs = slices.Contains(v.cfg.Waves, bench.WaveApplied)
		v.cfg.Waves = []bench.Wave{bench.WaveEnroll}
	}
	if v.cfg.Services {
		v.cfg.Connection.Shared, v.cfg.Waves = true, []bench.Wave{bench.WaveEnroll}
	}
}

func (v *flags) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v.cfg.Program = func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, args...)
		cmd.Args[0] = verb.Program
		return cmd
	}
	r, err := bench.Run(ctx, v.cfg)
	if err != nil {
		return err
	}
	if err := verb.Show(&v.Output, r, table); err != nil {
		return err
	}
	if n := r.Refused + r.Failed; n > 0 {
		return fmt.Errorf("%d nodes failed, the first: %s", n, r.Why[0])
	}
	return nil
}

func table(r *bench.Result) fmt.Stringer {
	t := &cli.Table{}
	row := func(label, format string, args ...any) { t.Add(label, fmt.Sprintf(format, args...)) }
	each := "node"
	if r.ServiceNodes > 0 {
		each = "certificate"
		row("certificates", "%d of %d nodes; each one checked", r.Nodes, r.ServiceNodes)
		row("issued", "%.0f a minute", r.NodesPerMinute)
	} else {
		row("nodes", "%d; every certificate checked", r.Nodes)
		row("enrolled", "%.0f a minute", r.NodesPerMinute)
	}
	if r.ProvisionedPerMinute > 0 {
		row("provisioned", "%.0f a minute (%d in %.2f s)", r.ProvisionedPerMinute, r.Provisioned, r.Seconds)
	}
	row("latency", "p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms", r.P50, r.P99, r.P999)
	for _, code := range slices.Sorted(maps.Keys(r.Refusals)) {
		row("refusals", "%d %s", r.Refusals[code], code)
	}
	if p := r.Puppet; p != nil {
		puppetRows(p, row)
	}
	if r.StartMemory == 0 { // another provisioner served
		row("CPU per "+each, "%.0f µs for the simulated nodes", r.DriverCPU)
		return t
	}
	row("CPU per "+each, "%.0f µs serving, %.0f µs for the simulated nodes", r.ServingCPU, r.DriverCPU)
	row("peak memory", "%.0f MB serving", float64(r.PeakMemory)/1e6)
	row("disk per "+each, "%.0f bytes", r.WrittenPerNode)
	row("start", "%.2f s, then %.0f MB; %d records", r.StartMS/1000, float64(r.StartMemory)/1e6, r.Stored)
	if r.Idle > 0 {
		row("connected fleet", "%d nodes over mutual TLS: %.0f MB", r.Idle, float64(r.IdleMemory)/1e6)
	}
	return t
}

func puppetRows(p *bench.PuppetResult, row func(label, format string, args ...any)) {
	if p.Runs > 0 {
		row("runs", "%.0f a minute (%d), p50 %.1f ms, p99 %.1f ms", p.RunsPerMinute, p.Runs, p.RunP50, p.RunP99)
		row("CPU per run", "%.0f µs serving", p.RunCPU)
	}
	if p.Statuses > 0 {
		row("statuses", "%d listed in %.1f ms (%.1f to %.1f)", p.Statuses, p.ListP50, p.ListMin, p.ListMax)
	}
}
