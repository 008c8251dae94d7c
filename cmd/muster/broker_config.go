package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/broker"
)

// brokerConfigVerb is "muster broker config".
type brokerConfigVerb struct {
	config        string
	server        daemon.BrokerServer
	cluster       broker.ClusterConfig
	routes        []string
	leaves        broker.LeavesConfig
	leafListenSet bool
	storeSet      bool // --max-store-bytes was given
	connsSet      bool // --max-connections was given
	hub           broker.HubConfig
	write         bool
	keys          keyFlags
}

const brokerConfigHelp = `Prints the configuration of one nats-server for the installation of
provisioner.yaml: accounts, permissions, limits, TLS, JetStream that syncs every
write, and the question to the provisioners about who may connect. With --write,
DIR is made with all that the server needs, its key and certificate among it:
copy it to the server's machine and run nats-server -c DIR/nats-server.conf, or
muster broker run DIR/nats-server.conf.

A site has a broker of its own with --site and --hub, which the hub's brokers let
in with --leaf: its provisioners, whose site and broker.url say so, answer its
nodes, and while there is none, those of the hub do.

It holds secrets: the cluster's password, and with --write the server's key.

  muster broker config --name n1.example.net
  muster broker config --name n1.example.net --dir n1 --write \
    --route n2.example.net:6222 --route n3.example.net:6222
  muster broker config --name ams1.example.net --dir ams1 --write \
    --site ams1 --hub n1.example.net:7422`

func addBrokerConfig(parent *kingpin.CmdClause, all verbs) {
	v := &brokerConfigVerb{}
	c := parent.Command("config", "Print or write the configuration of a nats-server.").HelpLong(brokerConfigHelp)
	c.Flag("config", "Configuration file of a provisioner, made by 'provisioner init --cluster'."+configHelp).Default(defaultConfig).PlaceHolder("FILE").StringVar(&v.config)
	c.Flag("name", "Name of the server: a host name, unique in the cluster.").Required().PlaceHolder("HOST").StringVar(&v.server.Name)
	c.Flag("listen", "Address for nodes and provisioners. Default: 0.0.0.0:4222.").Default("0.0.0.0:4222").PlaceHolder("HOST:PORT").StringVar(&v.server.Listen)
	c.Flag("dir", "Directory of the server's files on its machine.").Default("/etc/nats").StringVar(&v.server.Dir)
	c.Flag("store-dir", "Directory of its streams; 'store' in the directory if not given.").PlaceHolder("DIR").StringVar(&v.server.StoreDir)
	cli.Int(c.Flag("max-store-bytes", "Bytes that its streams may take; three quarters of what is free if not given.").PlaceHolder("N").IsSetByUser(&v.storeSet), &v.server.MaxStoreBytes)
	cli.Int(c.Flag("max-connections", fmt.Sprintf("Connections of this server; %d if not given.", broker.DefaultMaxConnections)).PlaceHolder("N").IsSetByUser(&v.connsSet), &v.server.MaxConnections)
	c.Flag("cluster", "Name of the cluster. Default: muster.").Default("muster").PlaceHolder("NAME").StringVar(&v.cluster.Name)
	c.Flag("cluster-listen", "Address for the other servers. Default: 0.0.0.0:6222.").Default("0.0.0.0:6222").PlaceHolder("HOST:PORT").StringVar(&v.cluster.Listen)
	c.Flag("route", "Where a server of the cluster is reached by the others (repeatable); none for a server that is alone.").PlaceHolder("HOST:PORT").StringsVar(&v.routes)
	c.Flag("leaf", "Name of the broker of a site that is let in as a leaf (repeatable).").PlaceHolder("HOST").StringsVar(&v.leaves.Names)
	c.Flag("leaf-listen", "Address for the brokers of sites. Default: 0.0.0.0:7422.").Default("0.0.0.0:7422").PlaceHolder("HOST:PORT").IsSetByUser(&v.leafListenSet).StringVar(&v.leaves.Listen)
	c.Flag("site", "Site that this broker is at: it is a leaf of --hub then, and has no streams.").PlaceHolder("SITE").StringVar(&v.hub.Site)
	c.Flag("hub", "Where a broker of the hub takes leaves (repeatable).").PlaceHolder("HOST:PORT").StringsVar(&v.hub.URLs)
	c.Flag("write", "Make the directory, with a new key and a certificate.").BoolVar(&v.write)
	v.keys.add(c)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

// check returns all that is wrong with the command line.
func (v *brokerConfigVerb) check() error {
	var all []error
	hosts := func(flag string, names ...string) {
		for _, name := range names {
			if _, err := wire.ParseIdentity(name); err != nil {
				all = append(all, fmt.Errorf("--%s: %w", flag, err))
			}
		}
	}
	addresses := func(flag string, noHost bool, list ...string) {
		for _, a := range list {
			host, port, err := net.SplitHostPort(a)
			n, noPort := strconv.ParseUint(port, 10, 16)
			if err != nil || noPort != nil || n == 0 || host == "" && !noHost || strings.ContainsAny(host, "/@ \"") {
				all = append(all, fmt.Errorf("--%s: %q is not HOST:PORT", flag, a))
			}
		}
	}
	// 0 would be as if it had not been given.
	if v.storeSet && v.server.MaxStoreBytes < 1 {
		all = append(all, fmt.Errorf("--max-store-bytes is %d, want 1 or more", v.server.MaxStoreBytes))
	}
	if v.connsSet && v.server.MaxConnections < 1 {
		all = append(all, fmt.Errorf("--max-connections is %d, want 1 or more", v.server.MaxConnections))
	}
	if v.leafListenSet && len(v.leaves.Names) == 0 {
		all = append(all, errors.New("--leaf-listen without --leaf: which brokers of sites are let in?"))
	}
	if strings.ContainsFunc(v.cluster.Name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		all = append(all, fmt.Errorf("--cluster is %q, want a name without blanks", v.cluster.Name)) // nats-server takes no other
	}
	hosts("name", v.server.Name)
	hosts("leaf", v.leaves.Names...)
	addresses("listen", true, v.server.Listen)
	addresses("cluster-listen", true, v.cluster.Listen)
	addresses("leaf-listen", true, v.leaves.Listen)
	addresses("route", false, v.routes...)
	addresses("hub", false, v.hub.URLs...)
	all = append(all, v.ports()...)
	if v.hub.Site != "" || len(v.hub.URLs) > 0 {
		if v.hub.Site == "" {
			all = append(all, errors.New("--site is missing: --hub is for the broker of a site, give the site that it is at"))
		} else if _, err := jwt.ParseSite(v.hub.Site); err != nil {
			all = append(all, fmt.Errorf("--site: %w", err))
		}
		if len(v.hub.URLs) == 0 {
			all = append(all, errors.New("--hub is missing: the broker of a site is a leaf of the hub's"))
		}
		if len(v.routes) > 0 || len(v.leaves.Names) > 0 {
			all = append(all, errors.New("--route and --leaf are for brokers of the hub, --hub for that of a site: give one of them"))
		}
	}
	return errors.Join(all...)
}

// ports reports listeners of the server that could not have their port, which it would say
// only when it is run.
func (v *brokerConfigVerb) ports() (all []error) {
	listeners := [][2]string{{"--listen", v.server.Listen}}
	if len(v.routes) > 0 {
		listeners = append(listeners, [2]string{"--cluster-listen", v.cluster.Listen})
	}
	if len(v.leaves.Names) > 0 {
		listeners = append(listeners, [2]string{"--leaf-listen", v.leaves.Listen})
	}
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			if _, port, err := net.SplitHostPort(l[1]); err == nil && strings.HasSuffix(other[1], ":"+port) {
				all = append(all, fmt.Errorf("%s and %s: both are port %s, want one each", other[0], l[0], port))
			}
		}
	}
	return all
}

func (v *brokerConfigVerb) run(ctx context.Context) error {
	dir, err := filepath.Abs(v.server.Dir)
	if err != nil {
		return err
	}
	v.server.Dir, v.server.Keyring = dir, v.keys.ring(ctx)
	if v.server.StoreDir == "" {
		v.server.StoreDir = filepath.Join(dir, "store")
	}
	if v.cluster.Routes = v.routes; len(v.routes) > 0 {
		v.server.Cluster = &v.cluster
	}
	if len(v.leaves.Names) > 0 {
		v.server.Leaves = &v.leaves
	}
	if v.hub.Site != "" || len(v.hub.URLs) > 0 {
		v.server.Hub = &v.hub
	}
	if !v.write {
		text, err := v.server.Text(v.config)
		if err == nil {
			_, err = fmt.Fprint(os.Stdout, text)
		}
		return orNoSetup(v.config, err)
	}
	if err := v.server.Write(v.config, dir); err != nil {
		return orNoSetup(v.config, err)
	}
	_, err = fmt.Fprintf(os.Stdout, "%s is ready. On %s: nats-server -c %s\n", quoted(dir), v.server.Name, quoted(filepath.Join(dir, "nats-server.conf")))
	return unprinted(quoted(dir)+" is ready", err)
}

// brokerCertificateVerb is "muster broker certificate".
type brokerCertificateVerb struct {
	config string
	server daemon.BrokerServer
	keys   keyFlags
}

const brokerCertificateHelp = `Puts a new key and certificate in the place of those that 'broker config --write'
made, and the authority's roots as they are now. Then have the server read them:
nats-server --signal reload, or SIGHUP. It lasts for certificates.max_lifetime.

  muster broker certificate n1 --name n1.example.net
  muster broker certificate n1 --name n1.example.net --passphrase-file passphrase`

func addBrokerCertificate(parent *kingpin.CmdClause, all verbs) {
	v := &brokerCertificateVerb{}
	c := parent.Command("certificate", "Renew the certificate of a nats-server.").HelpLong(brokerCertificateHelp)
	c.Arg("dir", "Directory with its files.").Required().StringVar(&v.server.Dir)
	c.Flag("config", "Configuration file of a provisioner."+configHelp).Default(defaultConfig).PlaceHolder("FILE").StringVar(&v.config)
	c.Flag("name", "Name of the server.").Required().PlaceHolder("HOST").StringVar(&v.server.Name)
	v.keys.add(c)
	all.Check(c, func() error {
		if _, err := wire.ParseIdentity(v.server.Name); err != nil {
			return fmt.Errorf("--name: %w", err)
		}
		return nil
	})
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

func (v *brokerCertificateVerb) run(ctx context.Context) error {
	v.server.Keyring = v.keys.ring(ctx)
	if err := v.server.Renew(v.config, v.server.Dir); err != nil {
		return orNoSetup(v.config, err)
	}
	cli.Say(os.Stderr, program, "%s has a new key and certificate: have the server %s read them, with nats-server --signal reload or SIGHUP", quoted(v.server.Dir), v.server.Name)
	return nil
}

// brokerRunVerb is "muster broker run".
type brokerRunVerb struct {
	file string
	log  cli.LogFlags
}

const brokerRunHelp = `Runs the nats-server that is part of muster, with a configuration as 'muster
broker config' prints it, until it is told to stop (SIGTERM, SIGUSR2, Ctrl-C). It
then takes no more clients, hands over what it leads, and sends its clients to the
other brokers over ten seconds (lame_duck_duration); a second signal ends it at once.
SIGHUP has it read its configuration and certificates again. Other than nats-server,
it asks clients for a certificate and does without: nodes may come over TLS before
they have one.

  muster broker run /etc/nats/nats-server.conf
  muster broker run n1/nats-server.conf --log-format json`

func addBrokerRun(parent *kingpin.CmdClause, all verbs) {
	v := &brokerRunVerb{}
	c := parent.Command("run", "Run a broker alone.").HelpLong(brokerRunHelp)
	c.Arg("file", "Its configuration.").Required().StringVar(&v.file)
	v.log.Add(c, "info")
	all[c.FullCommand()] = v.run
}

func (v *brokerRunVerb) run(ctx context.Context) error {
	log, _ := v.log.New(os.Stderr)
	if strings.HasSuffix(v.file, ".yaml") {
		return errors.New(v.file + ": want a configuration of nats-server's, as 'muster broker config' prints it")
	}
	cli.IgnoreBrokenPipe() // what reads the log may end, and the broker goes on
	return broker.RunFile(ctx, v.file, log)
}
