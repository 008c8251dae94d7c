package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/bench"
	"muster/internal/cli"
	"muster/jwt"
)

// benchVerb is "muster bench".
type benchVerb struct {
	cfg         bench.Config
	connections string
	sealed      bool
	plain       bool
	applied     bool
	appliedSet  bool
	nodesSet    bool
	rate        string
	duration    string
	pids        []string
	json        bool
}

const benchHelp = `Plays NODES machines that enroll, each with a key and a certificate request of its
own, made before the clock starts, and checks what they get. Without --url, it
starts a provisioner of its own for it, as a process beside it in a temporary
directory, with every acknowledged write on disk, and removes everything at the
end.

First all nodes only get their certificates, which gives nodes enrolled a
minute; then as many others go all the way to their confirmation, which gives
nodes provisioned a minute and everything else that is printed. --no-applied
does the first only, --applied the second only.

  muster bench                                  # shared connections, plain
  muster bench --connections per-node --sealed  # what a booting fleet does
  muster bench --connections per-node --tls --drivers 2
  muster bench --rate 1500 --duration 30s       # latency at a given load
  muster bench --kick 15000 --drivers 2         # a whole fleet, provisioned again
  muster bench --url nats://broker:4222 --token provisioning.jwt --nodes 1000

With --kick, so many nodes are provisioned, connect to the fleet over mutual TLS, and
are then all sent back by 'muster node reprovision --all --wait': each enrolls again
with the key that it has, and connects again. 15,000 take 2.5 GB of memory, and 15,000
descriptors in the provisioner's process, so 'ulimit -n' has to be 16,000 or more.

With --rate, nodes begin at that rate whatever becomes of those before, and
latency counts from when they were to begin. The provisioner's answer 'busy' is
honored and counted, and is no failure. Exits with 0 if all nodes got through, 1 if
one did not, 2 if the command line makes no sense.`

func addBench(app *kingpin.Application, all verbs) {
	v := &benchVerb{}
	c := app.Command("bench", "Measure: enroll simulated nodes as fast as it goes.").HelpLong(benchHelp)
	cli.Int(c.Flag("nodes", "How many nodes, in each wave.").Default("20000").IsSetByUser(&v.nodesSet), &v.cfg.Nodes)
	cli.Int(c.Flag("concurrency", "How many nodes are in hand at a time.").Default("256"), &v.cfg.Concurrency)
	c.Flag("connections", "A TCP connection per node, or 16 for all nodes of a driver. Default: shared.").Default("shared").PlaceHolder("per-node|shared").EnumVar(&v.connections, "per-node", "shared")
	c.Flag("tls", "Nodes connect over TLS.").BoolVar(&v.cfg.TLS)
	c.Flag("sealed", "The token asks for sealing.").BoolVar(&v.sealed)
	c.Flag("plain", "It does not: the default.").BoolVar(&v.plain)
	c.Flag("token-key", "Key of the token's signer.").Default("rsa4096").EnumVar(&v.cfg.TokenKey, "rsa4096", "ed25519")
	cli.Int(c.Flag("uses", "Limit the token to so many nodes; 0 is no limit.").Default("0"), &v.cfg.Uses)
	cli.Int(c.Flag("facts-bytes", "Size of a node's facts.").Default("2048"), &v.cfg.FactsBytes)
	c.Flag("policy", "Rego that decides in place of the built-in 30 lines.").PlaceHolder("FILE").StringVar(&v.cfg.Policy)
	c.Flag("applied", "Nodes go all the way only, or not (--no-applied); both, one after the other, if not given.").IsSetByUser(&v.appliedSet).BoolVar(&v.applied)
	c.Flag("rate", "Begin so many nodes a second, all the way unless --no-applied, whatever becomes of those before.").PlaceHolder("N").StringVar(&v.rate)
	c.Flag("duration", "Begin no node after this time; with --rate, as many nodes as come in it.").PlaceHolder("TIME").StringVar(&v.duration)
	cli.Int(c.Flag("drivers", "Processes that play the nodes; one holds about 18,000 connections.").Default("1"), &v.cfg.Drivers)
	cli.Int(c.Flag("stored", "Put so many records into the store first. Without --rate, each wave is played twice, by turns with the same at an empty store.").Default("0"), &v.cfg.Stored)
	cli.Int(c.Flag("idle", "Have so many provisioned nodes connected over mutual TLS meanwhile.").Default("0"), &v.cfg.Idle)
	cli.Int(c.Flag("kick", "Instead of waves: have so many nodes in the fleet, and send all of them back to be provisioned again.").Default("0"), &v.cfg.Kick)
	cli.Int(c.Flag("provisioners", "So many at a broker of its own process, which asks them by auth callout; 0 is one with its broker inside.").Default("0"), &v.cfg.Provisioners)
	c.Flag("url", "Broker of a provisioner that runs already.").PlaceHolder("nats://HOST:PORT").StringVar(&v.cfg.URL)
	c.Flag("token", "Provisioning token that is good there; its policy has to let in n*.*.bench.muster.").PlaceHolder("FILE").StringVar(&v.cfg.TokenFile)
	c.Flag("pid", "Process that serves there, for its CPU and memory (repeatable).").PlaceHolder("PID").StringsVar(&v.pids)
	c.Flag("dir", "Where the temporary directory is made: the disk that is measured. Default: $TMPDIR or /tmp.").PlaceHolder("DIR").StringVar(&v.cfg.Dir)
	c.Flag("cpuprofile", "Write a CPU profile of the provisioner, for go tool pprof.").PlaceHolder("FILE").StringVar(&v.cfg.Profile)
	c.Flag("driver-cpuprofile", "Write a CPU profile of the first driver.").PlaceHolder("FILE").StringVar(&v.cfg.DriverProfile)
	c.Flag("json", "Print the result for programs.").BoolVar(&v.json)
	all.Check(c, func() error { return errors.Join(v.complete(), v.cfg.Check()) })
	all[c.FullCommand()] = cli.CleansUp(v.run)
	drive := app.Command(bench.DriveVerb, "Play nodes, as told on standard input.").Hidden()
	all[drive.FullCommand()] = func(ctx context.Context) error { return bench.Drive(ctx, os.Stdin, os.Stdout) }
}

func (v *benchVerb) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v.cfg.Program, v.cfg.Progress = programAt(self), benchProgress
	if cli.IsTerminal(os.Stderr) {
		v.cfg.Terminal = os.Stderr
	}
	if err := v.read(ctx); err != nil {
		return err
	}
	r, err := bench.Run(ctx, v.cfg)
	if err != nil {
		return err
	}
	if err := v.print(os.Stdout, r); err != nil {
		return err
	}
	if n := r.Missing(); n > 0 {
		return fmt.Errorf("%d nodes did not get through, the first: %s", n, r.Why[0])
	}
	return nil
}

// read reads the files that the flags name, before anything is started.
func (v *benchVerb) read(ctx context.Context) (err error) {
	if v.cfg.Policy != "" {
		if v.cfg.Rego, err = readFile(ctx, v.cfg.Policy); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	if v.cfg.TokenFile == "" {
		return nil
	}
	if v.cfg.Token, err = readTokenFile(ctx, v.cfg.TokenFile); err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if _, err = jwt.Peek(v.cfg.Token); err != nil {
		return fmt.Errorf("--token: %s: %w", v.cfg.TokenFile, err)
	}
	return nil
}

// complete makes the configuration of what the flags say together, or returns what
// of that cannot be.
func (v *benchVerb) complete() error {
	var errs []error
	v.cfg.Shared = v.connections == "shared"
	if v.cfg.Sealed = v.sealed; v.sealed && v.plain {
		errs = append(errs, errors.New("--sealed and --plain: only one can be"))
	}
	switch {
	case v.appliedSet && v.applied, v.rate != "" && !v.appliedSet:
		v.cfg.Waves = []bench.Wave{bench.WaveApplied}
	case v.appliedSet:
		v.cfg.Waves = []bench.Wave{bench.WaveEnroll}
	default:
		v.cfg.Waves = []bench.Wave{bench.WaveEnroll, bench.WaveApplied}
	}
	var err error
	if v.rate != "" {
		if v.cfg.Rate, err = strconv.ParseFloat(v.rate, 64); err != nil || !(v.cfg.Rate > 0 && v.cfg.Rate <= 1e6) {
			errs = append(errs, fmt.Errorf("--rate is %q, want nodes a second, up to 1000000", v.rate))
			v.cfg.Rate = 0
		}
	}
	if v.duration != "" {
		if v.cfg.Duration, err = cli.ParseDuration(v.duration); err != nil {
			errs = append(errs, fmt.Errorf("--duration: %w", err))
		}
		if nodes := v.cfg.Rate * v.cfg.Duration.Seconds(); v.cfg.Rate > 0 && err == nil && !v.nodesSet {
			if v.cfg.Nodes = int(nodes); nodes < 1 || nodes > bench.MaxNodes {
				errs = append(errs, fmt.Errorf("--rate %s for --duration %s makes %d nodes, want 1 to %d", v.rate, v.duration, int64(nodes), bench.MaxNodes))
				v.cfg.Nodes = 1 // the mistake is the other flags'
			}
		}
	}
	if v.rate != "" && v.duration == "" && !v.nodesSet {
		errs = append(errs, errors.New("--rate without --duration or --nodes: for how long?"))
	}
	v.cfg.PIDs = nil
	for _, text := range v.pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--pid is %q, want a number", text))
			continue
		}
		v.cfg.PIDs = append(v.cfg.PIDs, pid)
	}
	if v.cfg.Kick > 0 && v.nodesSet {
		errs = append(errs, errors.New("--kick with --nodes: it says how many there are"))
	}
	return errors.Join(errs...)
}

func (v *benchVerb) print(w io.Writer, r *bench.Result) error {
	if v.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	_, err := benchTable(r).WriteTo(w)
	return err
}

// shares writes the rates with many records stored, in percent of those without.
func shares(r *bench.Result) string {
	var all []string
	for _, of := range []struct {
		what   string
		shares []float64
	}{{"enrolled", r.EnrolledShare}, {"provisioned", r.ProvisionedShare}} {
		for i, share := range of.shares {
			text := fmt.Sprintf("%.0f", share)
			if i == 0 {
				text = of.what + " " + text
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ") + " %"
}

// benchTable is the result for people.
func benchTable(r *bench.Result) *cli.Table {
	t := &cli.Table{}
	row := func(label, format string, args ...any) { t.Add(label, fmt.Sprintf(format, args...)) }
	machine := func() {
		row("machine before", "checking a P-256 signature %.0f µs, a read in 8 MB %.0f ns, a new page %.1f µs, a system call %.0f ns", r.Verify, r.Read, r.Page, r.Syscall)
	}
	if k := r.Kick; k != nil {
		row("kicked", "%d nodes of the fleet, by one command", k.Nodes)
		row("provisioned again", "%d in %.1f s, each with the key that it had; every certificate checked", k.Provisioned, k.Seconds)
		row("in the fleet again", "all, after %.1f s", k.InFleet)
		row("CPU per node", "%.0f µs serving, %.0f µs the command, %.0f µs in %d drivers", k.ServingCPU, k.CommandCPU, k.DriverCPU, r.Drivers)
		row("peak memory", "%.0f MB serving", float64(k.PeakMemory)/1e6)
		machine()
		return t
	}
	row("nodes", "%d, each with its own key; every certificate checked", r.Nodes)
	row("enrolled", "%.0f a minute", r.NodesPerMinute)
	if r.ProvisionedPerMinute > 0 {
		row("provisioned", "%.0f a minute (%d in %.2f s)", r.ProvisionedPerMinute, r.Provisioned, r.Seconds)
	}
	row("latency", "p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms", r.P50, r.P99, r.P999)
	for _, code := range slices.Sorted(maps.Keys(r.Refusals)) {
		row("refusals", "%d %s", r.Refusals[code], code)
	}
	if r.Broken+r.Unanswered+r.Crossed > 0 {
		row("asked again", "%d after a broken connection, %d without a reply, %d after a reply to another request", r.Broken, r.Unanswered, r.Crossed)
	}
	if r.ServingCPU > 0 {
		row("CPU per node", "%.0f µs serving, %.0f µs in %d drivers", r.ServingCPU, r.DriverCPU, r.Drivers)
		row("peak memory", "%.0f MB serving", float64(r.PeakMemory)/1e6)
		if r.WritesPerNode > 0 {
			row("disk per node", "%.0f bytes, %.2f synced writes", r.WrittenPerNode, r.WritesPerNode)
		} else { // a provisioner of somebody else's counts them for itself
			row("disk per node", "%.0f bytes", r.WrittenPerNode)
		}
	} else {
		row("CPU per node", "%.0f µs in %d drivers; --pid says whose else is wanted", r.DriverCPU, r.Drivers)
	}
	row("fsync of the disk", "p50 %.0f µs, tried beside the run", r.FsyncP50)
	machine()
	if r.Stored > 0 {
		row("records before", "%d: start in %.1f s, then %.0f MB", r.Stored, r.StartMS/1000, float64(r.StartMemory)/1e6)
		if len(r.EnrolledShare)+len(r.ProvisionedShare) > 0 {
			row("rate with them", "%s of that when empty, by turns", shares(r))
		}
	}
	if r.Idle > 0 {
		row("connected fleet", "%d nodes over mutual TLS: %.0f MB", r.Idle, float64(r.IdleMemory)/1e6)
	}
	return t
}
