package provisioner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
	"muster/internal/wire"
)

// initFlags are the flags of "muster provisioner init".
type initFlags struct {
	setup.Installation
	dir     string
	encrypt bool
	keys    verb.KeyFlags

	ifMissing              bool
	listenSet, replicasSet bool // on the command line
}

const initHelp = `Makes everything that a provisioner needs in DIR, or nothing: a signer pair, a
certificate authority, a seal key, provisioner.yaml, a policy with tests, and a
server.conf for nodes. DIR must be missing or empty. The installed unit
muster-provisioner runs the setup in /etc/muster/provisioner, which has its data in
/var/lib/muster. Other setups have their data in DIR/data.

--listen is the address of the embedded broker. Nodes on other machines need one
such as :4222. With --broker-urls there is no embedded broker, and 'muster broker
config' configures the brokers of the cluster.

  muster provisioner init prov --host localhost --trust-domain example.net
  muster provisioner init /etc/muster/provisioner --listen :4222 --encrypt-keys
  muster provisioner init prov \
    --broker-urls tls://n1.example.net:4222,tls://n2.example.net:4222`

func addInit(parent *kingpin.CmdClause, all cli.Verbs) {
	s := &initFlags{}
	c := parent.Command("init", "Make a complete, working setup in a new directory.").HelpLong(initHelp)
	c.Arg("dir", "Directory to make, such as /etc/muster/provisioner.").Required().StringVar(&s.dir)
	cli.Flag(c, "host").StringVar(&s.Name)
	cli.Flag(c, "trust-domain").StringVar(&s.TrustDomain)
	cli.Flag(c, "listen").Default("127.0.0.1:4222").IsSetByUser(&s.listenSet).StringVar(&s.Listen)
	cli.Flag(c, "broker-name").StringsVar(&s.BrokerNames)
	cli.Flag(c, "broker-address").StringsVar(&s.Addresses)
	cli.Flag(c, "broker-urls").StringVar(&s.Cluster)
	cli.Int(cli.Flag(c, "replicas").Default("3").IsSetByUser(&s.replicasSet), &s.Replicas)
	cli.Flag(c, "site").StringVar(&s.Site)
	cli.Flag(c, "trust-first-use").BoolVar(&s.TrustFirstUse)
	cli.Flag(c, "encrypt-keys").BoolVar(&s.encrypt)
	cli.Flag(c, "passphrase-file").StringVar(&s.keys.PassphraseFile)
	cli.Flag(c, "if-missing").BoolVar(&s.ifMissing)
	all.Check(c, s.check)
	all[c.FullCommand()] = cli.CleansUp(s.run)
}

// check sets defaults that depend on the host, and returns all mistakes in the flags.
func (s *initFlags) check() error {
	s.NameByHost()
	for i, name := range s.BrokerNames {
		s.BrokerNames[i] = wire.FoldName(name)
	}
	err := s.Check()
	if s.keys.PassphraseFile != "" && !s.encrypt {
		err = errors.Join(err, errors.New("--passphrase-file without --encrypt-keys"))
	}
	switch { // flags without effect, which would otherwise show only when nodes do not reach a broker
	case s.listenSet && s.Cluster != "":
		err = errors.Join(err, errors.New("--listen and --broker-urls: give one of them; "+
			"--listen of brokers in a cluster is a flag of 'muster broker config'"))
	case s.replicasSet && s.Cluster != "" && s.Replicas == 0: // setup.Init would take 0 for the default
		err = errors.Join(err, errors.New("--replicas is 0, want 1 or more"))
	case s.replicasSet && s.Cluster == "":
		err = errors.Join(err, errors.New("--replicas without --broker-urls: the embedded broker keeps one copy"))
	}
	return err
}

func (s *initFlags) run(ctx context.Context) error {
	if s.ifMissing {
		exists, err := setup.Exists(s.dir)
		if exists {
			verb.Say("%s has a setup, which was not changed", verb.Quoted(s.dir))
		}
		if exists || err != nil {
			return err
		}
	}
	if s.encrypt {
		secret, err := s.keys.Choose(ctx)
		if err != nil {
			return err
		}
		defer clear(secret)
		s.Passphrase = secret
	}
	if err := setup.Init(s.dir, s.Installation); err != nil {
		return err
	}
	if s.TrustFirstUse {
		verb.Say("warning: --trust-first-use: the holder of a token can enroll any name that is not on record")
	}
	if !s.listenSet && s.Cluster == "" && s.Name != "localhost" {
		verb.Say("warning: the broker listens on this machine only: for nodes on other machines, " +
			"give --listen :4222, or set broker.listen in provisioner.yaml")
	}
	_, err := os.Stdout.WriteString(s.next())
	return verb.Unprinted(verb.Quoted(s.dir)+" is ready", err)
}

func (s *initFlags) next() string {
	names := s.Installation
	if len(names.BrokerNames) == 0 {
		names.BrokerNames = []string{names.Name}
	}
	path := func(parts ...string) string {
		return verb.Quoted(filepath.Join(append([]string{s.dir}, parts...)...))
	}
	node := "web1." + s.TrustDomain
	if wire.CheckReserved(wire.Identity(node)) != nil { // as with --host localhost
		node = "web1.example.net"
	}
	var b strings.Builder
	b.WriteString(path() + " is ready.\n\n")
	run := "Run the provisioner:\n\n  muster provisioner run --config " + path("provisioner.yaml") + "\n\n"
	if filepath.Clean(s.dir) == setup.DefaultDir {
		run = "Start the provisioner:\n\n  systemctl enable --now muster-provisioner\n\n"
	}
	if s.Cluster != "" {
		b.WriteString(brokerSteps(names.BrokerURLs(), path("provisioner.yaml")) + run)
		run = ""
	}
	fmt.Fprintf(&b, `Sign a token with a new secret:

  (umask 077; head -c 16 /dev/urandom | base64 > %[2]s)
  muster jwt provisioning.jwt %[3]s --insecure --secret-file %[2]s --default \
    --urls %[4]s --ca %[5]s --seal %[6]s

Copy the token to the image of your nodes as /etc/provisioning.jwt. With --seal, nodes send the token encrypted.

`, path(), path("secret"), path("signer-key.pem"), names.BrokerURLs(), path("ca", "root.pem"),
		path("seal.pub"))
	b.WriteString(run)
	fmt.Fprintf(&b, "In another terminal, run a node in a directory of its own. "+
		"On a real node, `muster-server run` is enough."+`

  muster server run --token-file provisioning.jwt --ssl-dir web1 --config web1/server.conf --identity %s

`, node)
	if !s.TrustFirstUse {
		fmt.Fprintf(&b, `The name of the node is new, so the node waits until you approve it:

  muster node approve %s --config %s

`, node, path("provisioner.yaml"))
	}
	if s.encrypt {
		b.WriteString("Commands that read a private key ask for the passphrase, or take --passphrase-file FILE.\n" +
			"For a service, see LoadCredentialEncrypted in 'systemctl cat muster-provisioner'.\n")
	}
	fmt.Fprintf(&b, "Move %s to a safe place off this machine.\n", path("ca", "root-key.pem"))
	return b.String()
}

// brokerSteps returns the commands that make and run each broker of a cluster. Brokers on one host get ports of their
// own.
func brokerSteps(urls, config string) string {
	all := strings.Split(urls, ",")
	names, flags, routes := make([]string, len(all)), make([]string, len(all)), ""
	onHost := map[string]int{}
	for i, url := range all {
		host, port, err := net.SplitHostPort(url)
		if err != nil {
			host, port = url, "4222"
		}
		names[i] = host
		if _, err := wire.ParseIdentity(host); err != nil || strings.Count(","+urls, ","+host+":") > 1 {
			names[i] = "n" + strconv.Itoa(i+1)
		}
		if port != "4222" {
			flags[i] += " --listen 0.0.0.0:" + port
		}
		clusterPort := strconv.Itoa(6222 + onHost[host])
		if onHost[host]++; clusterPort != "6222" {
			flags[i] += " --cluster-listen 0.0.0.0:" + clusterPort
		}
		routes += " --route " + net.JoinHostPort(host, clusterPort)
	}
	if len(all) > 1 {
		routes = " \\\n   " + routes
	} else {
		routes = ""
	}
	var b strings.Builder
	b.WriteString("Make the configuration of each broker, and copy its directory to its machine:\n\n")
	for i, name := range names {
		fmt.Fprintf(&b, "  muster broker config --config %[1]s --host %[2]s --write --dir %[2]s%[3]s%[4]s\n",
			config, name, flags[i], routes)
	}
	b.WriteString("\nRun each broker on its machine. The provisioner needs most of them:\n\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  muster broker run %s/nats-server.conf\n", name)
	}
	return b.String() + "\n"
}
