package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
	"muster/jwt"
	"muster/provisioner/broker"
)

// config holds the flags of "muster broker config".
type config struct {
	file    string
	server  setup.BrokerServer
	cluster broker.ClusterConfig
	leaves  broker.LeavesConfig
	hub     broker.HubConfig
	write   bool
	keys    verb.KeyFlags

	leafListenSet bool // on the command line
}

const configHelp = `Prints the configuration of one nats-server for the installation of provisioner.yaml:
accounts, permissions, limits, TLS, JetStream that syncs every write, and the
authentication of connections by the provisioners. With --write, it makes the
directory of --dir with everything that the server needs, its key and certificate
too. Copy that to the server's machine and run nats-server -c
DIR/nats-server.conf, or muster broker run DIR/nats-server.conf.

A site has a broker of its own with --site and --hub. The hub's brokers accept it
with --leaf. Provisioners at the site (site and broker.url in provisioner.yaml)
answer its nodes; without one, provisioners of the hub do.

The output is secret: it has the cluster's password, and with --write the key.

  muster broker config --host n1.example.net
  muster broker config --host n1.example.net --dir n1 --write \
    --route n2.example.net:6222 --route n3.example.net:6222
  muster broker config --host ams1.example.net --dir ams1 --write \
    --site ams1 --hub n1.example.net:7422`

func addConfig(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &config{}
	c := parent.Command("config", "Print or write the configuration of a broker.").HelpLong(configHelp)
	verb.Config(c, &v.file)
	cli.Parse(cli.Flag(c, "host").Required(), &v.server.Name, parseHost)
	cli.Parse(cli.Flag(c, "listen").Default("0.0.0.0:4222"), &v.server.Listen, cli.Checked(checkAddress))
	cli.Flag(c, "dir").Default("/etc/nats").StringVar(&v.server.Dir)
	cli.Flag(c, "store-dir").StringVar(&v.server.StoreDir)
	cli.IntIn(cli.Flag(c, "max-store-bytes"), &v.server.MaxStoreBytes, 1, math.MaxInt)
	connections := cli.Flag(c, "max-connections").Default(strconv.Itoa(broker.DefaultMaxConnections))
	cli.IntIn(connections, &v.server.MaxConnections, 1, math.MaxInt)
	cli.Parse(cli.Flag(c, "cluster").Default("muster"), &v.cluster.Name, cli.Checked(checkCluster))
	cli.Parse(cli.Flag(c, "cluster-listen").Default("0.0.0.0:6222"), &v.cluster.Listen, cli.Checked(checkAddress))
	cli.ParseEach(cli.Flag(c, "route"), &v.cluster.Routes, cli.Checked(checkPeer))
	cli.ParseEach(cli.Flag(c, "leaf"), &v.leaves.Names, parseHost)
	leafListen := cli.Flag(c, "leaf-listen").Default("0.0.0.0:7422").IsSetByUser(&v.leafListenSet)
	cli.Parse(leafListen, &v.leaves.Listen, cli.Checked(checkAddress))
	cli.Parse(cli.Flag(c, "site"), &v.hub.Site, cli.Parsed(jwt.ParseSite))
	cli.ParseEach(cli.Flag(c, "hub"), &v.hub.URLs, cli.Checked(checkPeer))
	cli.Flag(c, "write").BoolVar(&v.write)
	v.keys.AddFlags(c)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

// isLeaf reports whether the server is a leaf of a hub.
func (v *config) isLeaf() bool { return v.hub.Site != "" || len(v.hub.URLs) > 0 }

func (v *config) check() error {
	var err error
	if v.leafListenSet && len(v.leaves.Names) == 0 {
		err = errors.New("--leaf-listen without --leaf: name the brokers of sites that may connect")
	}
	return errors.Join(err, v.checkHub())
}

// checkCluster returns an error for a name that nats-server refuses.
func checkCluster(name string) error {
	unfit := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if name == "" || strings.ContainsFunc(name, unfit) {
		return fmt.Errorf("--cluster is %q, want a name without blanks", name)
	}
	return nil
}

// checkAddress returns an error unless address is HOST:PORT; the host may be empty.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, noPort := strconv.ParseUint(port, 10, 16)
	if err != nil || noPort != nil || n == 0 || strings.ContainsAny(host, "/@ \"") {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	return nil
}

// checkPeer is checkAddress for an address with a host.
func checkPeer(address string) error {
	if strings.HasPrefix(address, ":") {
		return fmt.Errorf("%q is not HOST:PORT", address)
	}
	return checkAddress(address)
}

func (v *config) checkHub() error {
	if !v.isLeaf() {
		return nil
	}
	var errs []error
	if v.hub.Site == "" {
		errs = append(errs, errors.New("--site is missing: --hub is for the broker of a site"))
	}
	if len(v.hub.URLs) == 0 {
		errs = append(errs, errors.New("--hub is missing: the broker of a site connects to a broker of the hub"))
	}
	if len(v.cluster.Routes) > 0 || len(v.leaves.Names) > 0 {
		errs = append(errs, errors.New("--route and --leaf are for brokers of the hub, "+
			"--hub is for the broker of a site: give one of them"))
	}
	return errors.Join(errs...)
}

func (v *config) run(ctx context.Context) error {
	dir, err := filepath.Abs(v.server.Dir)
	if err != nil {
		return err
	}
	v.server.Dir, v.server.Keyring = dir, v.keys.Ring(ctx)
	v.server.StoreDir = cmp.Or(v.server.StoreDir, filepath.Join(dir, "store"))
	if len(v.cluster.Routes) > 0 {
		v.server.Cluster = &v.cluster
	}
	if len(v.leaves.Names) > 0 {
		v.server.Leaves = &v.leaves
	}
	if v.isLeaf() {
		v.server.Hub = &v.hub
	}
	if !v.write {
		text, err := v.server.Text(v.file)
		if err != nil {
			return verb.OrNoSetup(v.file, err)
		}
		_, err = fmt.Fprint(os.Stdout, text)
		return err
	}
	if err := v.server.Write(v.file, dir); err != nil {
		return verb.OrNoSetup(v.file, err)
	}
	warnUnlisted(v.file, v.server.Name)
	_, err = fmt.Printf("%s is ready. On %s: nats-server -c %s\n", verb.Quoted(dir), v.server.Name,
		verb.Quoted(filepath.Join(dir, "nats-server.conf")))
	return verb.Unprinted(verb.Quoted(dir)+" is ready", err)
}
