package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/policies"
)

// eval holds the flags of "muster policy eval".
type eval struct {
	verb.Operator
	policy, input string
	node          wire.Identity
	certificate   string
	since         time.Duration
}

const evalHelp = `Shows how a policy decides about one node, and why. --input is a file that describes
the node, as docs/policies.md explains; members that are missing are those of a new
node. --node takes the newest input that the provisioner has recorded for a node, or,
as NODE/NAME, for one of its service certificates. What the policy prints is shown.
Configuration and certificate are checked as in an enrollment; --config names the
provisioner whose template, helper and limits count.
To see the value of each rule, give the same files to opa eval --explain=fails.

  muster policy eval prov/policy --input node.json
  muster policy eval prov/policy --node web1.example.net --since 12h
  muster policy eval prov/policy --node web1.example.net/haproxy

Exits with 0 if the policy decides, either way, 1 if it does not compile, makes no
decision or one that enrollment refuses, 2 if the command line is wrong.`

func addEval(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &eval{}
	c := parent.Command("eval", "Show how a policy decides about one node.").HelpLong(evalHelp)
	c.Arg("policy", "Rego file, or directory of Rego files.").Required().StringVar(&v.policy)
	cli.Flag(c, "input").StringVar(&v.input)
	cli.Parse(cli.Flag(c, "node").HintAction(verb.NodeNames), &v.node, v.parseNode)
	cli.Since(cli.Flag(c, "since").Default("7d"), &v.since, time.Second, 100*span.Year)
	v.AddFlags(c)
	all.Check(c, v.check)
	all[c.FullCommand()] = v.run
}

func (v *eval) parseNode(text string) (wire.Identity, error) {
	node, certificate, _ := strings.Cut(text, "/")
	v.certificate = certificate
	return wire.ParseName(node)
}

func (v *eval) check() error {
	var err error
	if (v.input == "") == (v.node == "") {
		err = errors.New("give one of --input and --node")
	}
	if v.node != "" {
		err = errors.Join(err, v.CheckURL())
	}
	return err
}

func (v *eval) run(ctx context.Context) error {
	preview, err := policyOnly, error(nil)
	if !v.Remote() {
		preview, err = previewOf(v.Config, true)
	}
	if err != nil {
		return err
	}
	if client, err := v.Client(); v.node != "" && err == nil {
		preview = withRecords(preview, client)
	}
	engine, err := load(v.policy, preview) //nolint:contextcheck // tests of policies are bounded
	if err != nil && v.node != "" {
		return err // no need to ask the provisioner
	}
	in, unread := v.read(ctx)
	if err = errors.Join(err, unread); err != nil {
		return err
	}
	warn(engine.Warnings())
	d, files, err := engine.Preview(ctx, in)
	if d != nil && d.Configuration == nil {
		d.Configuration = files.Configuration
	}
	if err == nil && d.Configuration == nil && in.Certificate == nil && d.Verdict() != policies.VerdictDeny {
		v.After("its configuration is the template's or the helper's: to see it, name the provisioner's with --config")
	}
	return cmp.Or(verb.Show(&v.Output, policies.NewAnswer(d, err), v.show), err)
}

func (v *eval) read(ctx context.Context) (*policies.Input, error) {
	switch v.input {
	case "":
		return v.recorded(ctx)
	case "-":
		const name = "standard input"
		b, err := inputfile.ReadAll(os.Stdin, name, inputfile.MaxBytes)
		if err == nil {
			b, err = inputfile.Text(b, name)
		}
		if err != nil {
			return nil, err
		}
		return policies.ParseInput(b)
	}
	return inputfile.Parse(v.input, inputfile.Typed, policies.ParseInput)
}

func (v *eval) recorded(ctx context.Context) (*policies.Input, error) {
	client, err := v.Client()
	if err != nil {
		return nil, err
	}
	var newest *policies.Recording
	err = eachRecorded(ctx, client, v.since, "looking", func(line []byte) error {
		if !bytes.Contains(line, []byte(strconv.Quote(string(v.node)))) {
			return nil // a quick check, which skips nearly all lines
		}
		r, err := policies.ParseRecording(line)
		newer := func() bool { return newest == nil || !r.Input.Time.Before(newest.Input.Time) }
		if err == nil && r.Input.Identity == string(v.node) && r.Input.Service() == v.certificate && newer() {
			newest = r
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case newest == nil:
		return nil, fmt.Errorf("no decision about %s is recorded in the last %s",
			path.Join(string(v.node), v.certificate), span.Format(v.since))
	case newest.Redacted:
		v.Say("facts of %s that looked like secrets were not recorded", v.node)
	}
	return newest.Input, nil
}

func (v *eval) show(a *policies.Answer) fmt.Stringer {
	l := &cli.Labels{}
	l.Add("Verdict", string(a.Verdict))
	l.AddIf("Reasons", strings.Join(a.Reasons, "\n"))
	l.AddIf("Certificate TTL", a.TTL)
	l.AddIf("More DNS Names", strings.Join(a.DNSNames, " "))
	l.AddIf("IP Addresses", strings.Join(a.IPAddresses, " "))
	l.AddIf("URIs", strings.Join(a.URIs, " "))
	l.AddIf("Service Certificates", strings.Join(slices.Sorted(maps.Keys(a.Certificates)), " "))
	keys := slices.Sorted(maps.Keys(a.Configuration))
	for i, key := range keys {
		keys[i] = key + " = " + a.Configuration[key]
	}
	l.AddIf("Configuration", strings.Join(keys, "\n"))
	return l
}
