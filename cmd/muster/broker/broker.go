// Package broker implements "muster broker": nats-servers beside the provisioner's own.
package broker

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("broker", "Run brokers apart from the provisioner.").
		HelpLong("A single provisioner has an embedded broker and does not need these verbs. Several\n" +
			"provisioners, or a remote site, use nats-servers that these verbs configure.")
	addConfig(c, all)
	addCertificate(c, all)
	addRun(c, all)
}

const certificateHelp = `Replaces the key and certificate that 'muster broker config --write' made, and the
authority's roots. Then make the broker reload: nats-server --signal reload, or
SIGHUP. The certificate is valid for certificates.max_lifetime.

  muster broker certificate n1 --host n1.example.net
  muster broker certificate n1 --host n1.example.net --passphrase-file passphrase`

func addCertificate(parent *kingpin.CmdClause, all cli.Verbs) {
	var config string
	var server setup.BrokerServer
	var keys verb.KeyFlags
	c := parent.Command("certificate", "Renew the certificate of a broker.").HelpLong(certificateHelp)
	c.Arg("dir", "Directory of the broker.").Required().StringVar(&server.Dir)
	verb.Config(c, &config)
	cli.Parse(cli.Flag(c, "host").Required(), &server.Name, parseHost)
	keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(func(ctx context.Context) error {
		server.Keyring = keys.Ring(ctx)
		if err := server.Renew(config, server.Dir); err != nil {
			return verb.OrNoSetup(config, err)
		}
		warnUnlisted(config, server.Name)
		verb.Say("%s has a new key and certificate: make the server %s reload, "+
			"with nats-server --signal reload or SIGHUP", verb.Quoted(server.Dir), server.Name)
		return nil
	})
}

// warnUnlisted is about a broker whose certificate lacks its own name. It may be right: nodes may use other names.
func warnUnlisted(config, host string) {
	if cfg, err := daemon.ReadConfig(config); err == nil && !slices.Contains(cfg.Broker.Names, host) {
		verb.Say("warning: %s is not in broker.names: nodes that reach the broker by this name refuse its "+
			"certificate, and a node can enroll under it; if nodes use the name, add it to broker.names "+
			"everywhere first", host)
	}
}

func parseHost(name string) (string, error) {
	host, err := wire.ParseName(name)
	return string(host), err
}

const runHelp = `Runs the nats-server that is part of muster, with a configuration of 'muster broker
config', until SIGTERM, SIGUSR2 or Ctrl-C. It then moves its clients to the other
brokers within ten seconds (lame_duck_duration); a second signal ends it at once.
SIGHUP makes it read its configuration and certificates again. Unlike nats-server,
it accepts TLS clients without a certificate: nodes connect before they have one.

  muster broker run /etc/nats/nats-server.conf
  muster broker run n1/nats-server.conf --log-format json`

func addRun(parent *kingpin.CmdClause, all cli.Verbs) {
	var file string
	var flags cli.LogFlags
	c := parent.Command("run", "Run a broker without a provisioner.").HelpLong(runHelp)
	c.Arg("file", "Configuration of the broker.").Required().StringVar(&file)
	flags.Add(c)
	all[c.FullCommand()] = func(ctx context.Context) error {
		signal.Ignore(syscall.SIGPIPE) // the broker runs on if the reader of its log ends
		log, _ := flags.New(os.Stderr)
		if strings.HasSuffix(file, ".yaml") {
			return errors.New(file + ": not a configuration of nats-server: " +
				"give a file that 'muster broker config' printed")
		}
		err := broker.RunFile(ctx, file, log)
		if errors.Is(err, broker.ErrStoreDamaged) || errors.Is(err, broker.ErrConfigFile) {
			return cli.NoRestart(err)
		}
		return err
	}
}
