package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/setup"
)

// initFlags is what the flags of "muster provisioner init" say: a complete setup in a new directory.
type initFlags struct {
	setup.Installation
	dir     string
	encrypt bool
	keys    verb.KeyFlags

	listenSet, replicasSet bool // on the command line
}

const initHelp = `Makes everything that a provisioner needs in DIR, or nothing: a signer pair, a
certificate authority, a seal key, provisioner.yaml, a policy with tests, a
server.conf for nodes, and systemd units. DIR must be missing or empty. The units do
not see /home and /tmp: for a service, use a directory such as
/etc/muster/provisioner.

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
	all.Check(c, s.check)
	all[c.FullCommand()] = cli.CleansUp(s.run)
}

// check completes the setup, and reports all that is wrong with it.
func (s *initFlags) check() error {
	if host, err := os.Hostname(); s.Name == "" && err == nil {
		s.Name = strings.ToLower(strings.TrimSuffix(host, "."))
	}
	if s.TrustDomain == "" {
		_, domain, _ := strings.Cut(s.Name, ".")
		s.TrustDomain = cmp.Or(domain, s.Name)
	}
	err := s.Check()
	if s.keys.PassphraseFile != "" && !s.encrypt {
		err = errors.Join(err, errors.New("--passphrase-file without --encrypt-keys"))
	}
	switch { // what would be left out, and missed only where nodes do not reach a broker
	case s.listenSet && s.Cluster != "":
		err = errors.Join(err, errors.New("--listen and --broker-urls: give one of them; the servers of a cluster have --listen in 'muster broker config'"))
	case s.replicasSet && s.Cluster != "" && s.Replicas == 0: // as if it had not been given
		err = errors.Join(err, errors.New("--replicas is 0, want 1 or more"))
	case s.replicasSet && s.Cluster == "":
		err = errors.Join(err, errors.New("--replicas without --broker-urls: the embedded broker keeps one copy"))
	}
	return err
}

func (s *initFlags) run(ctx context.Context) error {
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
		verb.Say("warning: --trust-first-use: the holder of a token can enroll under any name that was never seen")
	}
	if !s.listenSet && s.Cluster == "" && s.Name != "localhost" {
		verb.Say("warning: the broker listens on this machine only: nodes on other machines need --listen :4222, or broker.listen in provisioner.yaml")
	}
	_, err := os.Stdout.WriteString(s.next())
	return verb.Unprinted(verb.Quoted(s.dir)+" is ready", err)
}

// next says how to go on.
func (s *initFlags) next() string {
	names := s.Installation
	if len(names.BrokerNames) == 0 {
		names.BrokerNames = []string{names.Name}
	}
	path := func(parts ...string) string {
		return verb.Quoted(filepath.Join(append([]string{s.dir}, parts...)...))
	}
	node := "web1." + s.TrustDomain
	var b strings.Builder
	fmt.Fprintf(&b, `%[1]s is ready. Next:

  muster jwt provisioning.jwt %[2]s --insecure --token "$(openssl rand -hex 16)" --urls %[3]s --default --ca %[4]s --seal %[7]s
  muster provisioner run --config %[5]s
  muster server run --token-file provisioning.jwt --ssl-dir web1 --config web1/server.conf --identity %[6]s

The first signs a token, which goes onto your image as /etc/provisioning.jwt. Machines show it sealed, so that no
listener on the network can read it, nor anything that they send or get to enroll. The second serves the nodes that
present it. The third is such a node, in a directory of its own; on a real one, muster-server run is enough.
`, verb.Quoted(s.dir), path("signer-key.pem"), names.BrokerURLs(), path("ca", "root.pem"), path("provisioner.yaml"), node, path("seal.pub"))
	if s.Cluster != "" {
		first, _, _ := strings.Cut(names.BrokerURLs(), ",")
		if host, _, err := net.SplitHostPort(first); err == nil {
			first = host
		}
		fmt.Fprintf(&b, `Before that, configure the servers, each with its own name; see docs/high-availability.md:

  muster broker config --config %[1]s --host %[2]s --route ... --dir %[2]s --write

`, path("provisioner.yaml"), first)
	}
	if !s.TrustFirstUse {
		fmt.Fprintf(&b, `Its name was never seen, so it waits until you approve it:

  muster node approve %s --config %s

`, node, path("provisioner.yaml"))
	}
	if s.encrypt {
		b.WriteString("The first two ask for the passphrase on a terminal, or take --passphrase-file FILE; for a unit see LoadCredentialEncrypted in systemd/.\n")
	}
	fmt.Fprintf(&b, "Keep %s somewhere off this machine.\n", path("ca", "root-key.pem"))
	return b.String()
}
