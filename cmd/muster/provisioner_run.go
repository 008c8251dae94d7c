package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/keyfile"
)

// defaultConfig is where the configuration of a provisioner lies.
const defaultConfig = "/etc/muster/provisioner/provisioner.yaml"

// configHelp ends the help of every --config of a provisioner.
const configHelp = " Default: " + defaultConfig + "."

// runVerb is "muster provisioner run".
type runVerb struct {
	config  string
	check   bool
	alone   bool
	profile string
	keys    keyFlags
	log     cli.LogFlags
}

const runHelp = `Serves until it is told to stop (SIGTERM, or Ctrl-C): it then takes no further
request, finishes those in hand, and stops its broker; told again, it ends at once,
which loses nothing that was acknowledged. All that can be set is in the configuration
file; 'muster provisioner init' writes one with every key explained.

  muster provisioner run --config prov/provisioner.yaml
  muster provisioner run --check  # is the configuration right?

Exits with 0 when it was told to stop, or with --check if all is right, 1 if not, and
after SIGHUP, for a service manager to start it again with the configuration as it is
by then, 2 if the command line makes no sense.`

func addProvisionerRun(parent *kingpin.CmdClause, all verbs) {
	v := &runVerb{}
	c := parent.Command("run", "Run the provisioner with its broker.").HelpLong(runHelp)
	c.Flag("config", "Configuration file."+configHelp).Default(defaultConfig).PlaceHolder("FILE").StringVar(&v.config)
	c.Flag("check", "Load and check everything, start nothing, print nothing.").BoolVar(&v.check)
	c.Flag("alone", "Forget the other provisioners at these brokers, since none of them will ever run again.").BoolVar(&v.alone)
	c.Flag("cpuprofile", "Write a CPU profile of all that it does, until it stops.").Hidden().PlaceHolder("FILE").StringVar(&v.profile)
	v.keys.add(c)
	v.log.Add(c, "info")
	all[c.FullCommand()] = cli.Serves(v.run) // what reads the log may end, and the provisioner goes on
}

func (v *runVerb) run(ctx context.Context) error {
	log, _ := v.log.New(os.Stderr)
	d, err := daemon.Load(v.config, daemon.Options{Version: cli.Version(), Log: log, Alone: v.alone, Keys: v.keys.ring(ctx)}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if errors.Is(err, keyfile.ErrPassphrase) || errors.Is(err, context.Canceled) {
		return err // the configuration may well be right
	}
	if err != nil {
		return orNoSetup(v.config, fmt.Errorf("configuration of the provisioner:\n%w", err))
	}
	if v.check {
		return d.Usable()
	}
	daemon.MakeHeapRoom(ctx)
	return profiled(v.profile, func() error { return d.Run(ctx, nil) })
}

// orNoSetup returns err, or, if what it failed at is that there is no configuration, or that
// a file may not be read, what to do about that. Of nil it returns nil.
func orNoSetup(config string, err error) error {
	if err == nil {
		return nil
	}
	if _, missing := os.Stat(config); errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("configuration of the provisioner: %w: make one with `muster provisioner init`, or name it with --config", missing)
	}
	return orNotYours(err)
}

// orNotYours returns err, and, if what it failed at is that a file may not be read, whom that
// belongs to. Of nil it returns nil.
func orNotYours(err error) error {
	var file *fs.PathError
	if !errors.As(err, &file) || !errors.Is(file, fs.ErrPermission) {
		return err
	}
	path := file.Path
	info, closed := os.Stat(path)
	for closed != nil && filepath.Dir(path) != path { // the directory is closed as well
		path = filepath.Dir(path)
		info, closed = os.Stat(path)
	}
	if closed != nil {
		return err
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return err
	}
	name := "user " + strconv.FormatUint(uint64(of.Uid), 10)
	if account, err := user.LookupId(strconv.FormatUint(uint64(of.Uid), 10)); err == nil {
		name = account.Username
	}
	return fmt.Errorf("%w\n%s belongs to %s: run this as root or as the provisioner's user", err, path, name)
}

// profiled writes a CPU profile of run, if there is a file for it.
func profiled(file string, run func() error) (err error) {
	if file == "" {
		return run()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return run()
}

// hostName returns this machine's name in lower case, "" if it has none.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// domainOf returns the name without its first label, or all of a name of one
// label.
func domainOf(name string) string {
	if _, domain, ok := strings.Cut(name, "."); ok {
		return domain
	}
	return name
}
