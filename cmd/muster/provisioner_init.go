package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
)

// initVerb is "muster provisioner init": a complete setup in a new directory.
type initVerb struct {
	dir        string
	setup      daemon.Setup
	listens    bool // --listen was given
	replicated bool // --replicas was given
	encrypt    bool
	keys       keyFlags
}

const initHelp = `Everything that a provisioner needs appears in DIR at once, or nothing does: a
signer pair, a certificate authority, a seal key, provisioner.yaml, a policy
with its tests, an allow-list, a server.conf for nodes, and systemd units. DIR
must be missing or empty: nothing is ever overwritten.

  muster provisioner init prov --name localhost --trust-domain example.net
  muster provisioner init /etc/muster/provisioner --listen :4222 --encrypt-keys
  muster provisioner init prov --cluster tls://n1.example.net:4222,tls://n2.example.net:4222`

func addProvisionerInit(parent *kingpin.CmdClause, all verbs) {
	v := &initVerb{}
	c := parent.Command("init", "Make a complete, working setup in a new directory.").HelpLong(initHelp)
	c.Arg("dir", "Directory to make, such as /etc/muster/provisioner.").Required().StringVar(&v.dir)
	c.Flag("name", "Host name of provisioner and broker; this machine's if not given.").PlaceHolder("HOST").StringVar(&v.setup.Name)
	c.Flag("trust-domain", "First part of every certificate's SPIFFE ID; the name's domain if not given.").PlaceHolder("DOMAIN").StringVar(&v.setup.TrustDomain)
	c.Flag("listen", "Address of the broker; only this machine reaches the default.").Default("127.0.0.1:4222").IsSetByUser(&v.listens).StringVar(&v.setup.Listen)
	c.Flag("broker-name", "Host name under which nodes reach the broker (repeatable); the name if not given.").PlaceHolder("HOST").StringsVar(&v.setup.BrokerNames)
	c.Flag("broker-address", "IP address under which nodes reach the broker (repeatable).").PlaceHolder("IP").StringsVar(&v.setup.Addresses)
	c.Flag("cluster", "Servers of a NATS cluster to use in place of a broker of its own, like tls://n1:4222,tls://n2:4222. 'muster broker config' then configures them.").PlaceHolder("URLS").StringVar(&v.setup.Cluster)
	cli.Int(c.Flag("replicas", "On how many of these servers each record is.").Default("3").IsSetByUser(&v.replicated), &v.setup.Replicas)
	c.Flag("site", "Where this provisioner stands.").PlaceHolder("NAME").StringVar(&v.setup.Site)
	c.Flag("trust-first-use", "For labs: let in every name that was never seen.").BoolVar(&v.setup.TrustFirstUse)
	c.Flag("encrypt-keys", "Encrypt all private keys with a passphrase.").BoolVar(&v.encrypt)
	c.Flag("passphrase-file", "File with the passphrase; asked for on the terminal if not given.").PlaceHolder("FILE").StringVar(&v.keys.passphraseFile)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

// check completes the setup, and reports all that is wrong with it.
func (v *initVerb) check() error {
	if v.setup.Name == "" {
		v.setup.Name = hostName()
	}
	if v.setup.TrustDomain == "" {
		v.setup.TrustDomain = domainOf(v.setup.Name)
	}
	mistakes := v.setup.Check()
	if v.keys.passphraseFile != "" && !v.encrypt {
		mistakes = errors.Join(mistakes, errors.New("--passphrase-file without --encrypt-keys"))
	}
	switch { // what would be left out, and missed only where nodes do not reach a broker
	case v.listens && v.setup.Cluster != "":
		mistakes = errors.Join(mistakes, errors.New("--listen and --cluster: only one can be; the servers of a cluster listen as 'muster broker config' says"))
	case v.replicated && v.setup.Cluster != "" && v.setup.Replicas == 0: // as if it had not been given
		mistakes = errors.Join(mistakes, errors.New("--replicas: is 0, want 1 or more"))
	case v.replicated && v.setup.Cluster == "":
		mistakes = errors.Join(mistakes, errors.New("--replicas without --cluster: a broker of its own has one copy"))
	}
	return mistakes
}

func (v *initVerb) run(ctx context.Context) error {
	if v.encrypt {
		secret, err := v.keys.choose(ctx)
		if err != nil {
			return err
		}
		defer clear(secret)
		v.setup.Passphrase = secret
	}
	if err := daemon.Init(v.dir, v.setup); err != nil {
		return err
	}
	if v.setup.TrustFirstUse {
		cli.Say(os.Stderr, program, "warning: --trust-first-use: whoever has a token can enroll under any name that was never seen")
	}
	if v.setup.OnlyHere() {
		cli.Say(os.Stderr, program, "warning: the broker listens on this machine only: nodes elsewhere need --listen :4222, or broker.listen in provisioner.yaml")
	}
	return unprinted(quoted(v.dir)+" is ready", v.next(os.Stdout))
}

// firstHost returns the host of the first of some brokers, host:port each.
func firstHost(brokers string) string {
	first, _, _ := strings.Cut(brokers, ",")
	host, _, err := net.SplitHostPort(first)
	if err != nil {
		return first
	}
	return host
}

// next prints how to go on.
func (v *initVerb) next(w io.Writer) error {
	names := v.setup
	if len(names.BrokerNames) == 0 {
		names.BrokerNames = []string{names.Name}
	}
	path := func(parts ...string) string { return quoted(filepath.Join(append([]string{v.dir}, parts...)...)) }
	node := "web1." + v.setup.TrustDomain
	_, err := fmt.Fprintf(w, `%[1]s is ready. Next:

  muster jwt provisioning.jwt %[2]s --insecure --token "$(openssl rand -hex 16)" --urls %[3]s --default --ca %[4]s --seal %[7]s
  muster provisioner run --config %[5]s
  muster server run --token provisioning.jwt --ssl-dir web1 --config web1/server.conf --identity %[6]s

The first signs a token, which goes onto your image as /etc/provisioning.jwt. Machines show it sealed, so that no
listener on the network can read it, nor anything that they send or get to enroll. The second serves the nodes that
present it. The third is such a node, in a directory of its own; on a real one, muster-server run is enough.
`, quoted(v.dir), path("signer-key.pem"), names.BrokerURLs(), path("ca", "root.pem"), path("provisioner.yaml"), node, path("seal.pub"))
	if err == nil && v.setup.Cluster != "" {
		_, err = fmt.Fprintf(w, `Before that, configure the servers, each with its own name; see "Several machines" in docs/operations.md:

  muster broker config --config %[1]s --name %[2]s --route ... --dir %[2]s --write

`, path("provisioner.yaml"), firstHost(names.BrokerURLs()))
	}
	if err == nil && !v.setup.TrustFirstUse {
		_, err = fmt.Fprintf(w, `Its name was never seen, so it waits until you approve it:

  muster node approve %s --config %s

`, node, path("provisioner.yaml"))
	}
	if err == nil && v.encrypt {
		_, err = fmt.Fprint(w, "The first two ask for the passphrase on a terminal, or take --passphrase-file FILE; for a unit see LoadCredentialEncrypted in systemd/.\n")
	}
	if setting, hidden := daemon.HiddenFromUnits(v.dir); err == nil && hidden != "" {
		_, err = fmt.Fprintf(w, "The units in %s see nothing below %s (%s): for a service make the setup elsewhere, such as in /etc/muster/provisioner.\n", path("systemd"), hidden, setting)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "Keep %s somewhere off this machine.\n", path("ca", "root-key.pem"))
	}
	return err
}

// quoted returns a path as a shell takes it.
func quoted(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
