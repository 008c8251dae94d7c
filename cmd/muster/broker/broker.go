// Package broker has "muster broker": nats-servers beside the provisioner's own.
package broker

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("broker", "Set up and run brokers apart from the provisioner.").
		HelpLong("A provisioner has a broker inside and needs none of this. Several provisioners, or a\nsite of its own, use nats-servers that these verbs configure.")
	addConfig(c, all)
	addCertificate(c, all)
	addRun(c, all)
}

const certificateHelp = `Puts a new key and certificate in the place of those that 'broker config --write'
made, and the authority's roots as they are now. Then have the server read them:
nats-server --signal reload, or SIGHUP. It lasts for certificates.max_lifetime.

  muster broker certificate n1 --host n1.example.net
  muster broker certificate n1 --host n1.example.net --passphrase-file passphrase`

func addCertificate(parent *kingpin.CmdClause, all cli.Verbs) {
	var config string
	var server setup.BrokerServer
	var keys verb.KeyFlags
	c := parent.Command("certificate", "Renew the certificate of a nats-server.").HelpLong(certificateHelp)
	c.Arg("dir", "Directory with its files.").Required().StringVar(&server.Dir)
	verb.Config(c, &config)
	cli.Parse(cli.Flag(c, "host").Required(), &server.Name, cli.Checked(checkHost))
	keys.AddFlags(c)
	all[c.FullCommand()] = cli.CleansUp(func(ctx context.Context) error {
		server.Keyring = keys.Ring(ctx)
		if err := server.Renew(config, server.Dir); err != nil {
			return verb.OrNoSetup(config, err)
		}
		verb.Say("%s has a new key and certificate: have the server %s read them, with nats-server --signal reload or SIGHUP", verb.Quoted(server.Dir), server.Name)
		return nil
	})
}

// checkHost reports what is no host name.
func checkHost(name string) error {
	_, err := wire.ParseIdentity(name)
	return err
}

const runHelp = `Runs the nats-server that is part of muster, with a configuration as 'muster
broker config' prints it, until it is told to stop (SIGTERM, SIGUSR2, Ctrl-C). It
then takes no more clients, hands over what it leads, and sends its clients to the
other brokers over ten seconds (lame_duck_duration); a second signal ends it at once.
SIGHUP has it read its configuration and certificates again. Other than nats-server,
it asks clients for a certificate and does without: nodes may come over TLS before
they have one.

  muster broker run /etc/nats/nats-server.conf
  muster broker run n1/nats-server.conf --log-format json`

func addRun(parent *kingpin.CmdClause, all cli.Verbs) {
	var file string
	var flags cli.LogFlags
	c := parent.Command("run", "Run a broker alone.").HelpLong(runHelp)
	c.Arg("file", "Its configuration.").Required().StringVar(&file)
	flags.Add(c)
	all[c.FullCommand()] = func(ctx context.Context) error {
		signal.Ignore(syscall.SIGPIPE) // what reads the log may end, and the broker goes on
		log, _ := flags.New(os.Stderr)
		if strings.HasSuffix(file, ".yaml") {
			return errors.New(file + ": no configuration of nats-server as 'muster broker config' prints it")
		}
		err := broker.RunFile(ctx, file, log)
		if errors.Is(err, broker.ErrStoreDamaged) || errors.Is(err, broker.ErrConfigFile) {
			return cli.NoRestart(err)
		}
		return err
	}
}
