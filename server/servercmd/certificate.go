package servercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/server"
	"muster/server/certificates"
)

type certificateVerb struct {
	files
	output cli.Output
	out    io.Writer
	names  []string
	order  certificates.Order // without a name
}

const certificateHelp = `A service certificate is one that this node has besides its own, for haproxy, a
database or a message broker. The file /etc/muster/certificates.d/NAME.yaml says
which names it has and where its files belong, or the policy of the fleet does:

  dns_names: ["{{.identity}}"]
  files:
    key: {path: /etc/muster/tls/web.key}
    certificate: {path: /etc/muster/tls/web.crt}
    chain: {path: /etc/muster/tls/web-chain.crt}
  action: reload-nginx   # of /etc/muster/actions.d/reload-nginx.yaml

The running agent keeps it. Run these commands as the agent's user.`

const checkHelp = `Prints a line for each: ok, warn or fail, its name, the result, and what to do.

  %[1]s
  %[1]s web -o json

Exits with 0 if all are in place, 1 if one is not there yet or ends soon (less than a
sixth of its life is left), 2 if one is stuck or has expired.`

const examples = "\n\n  %[1]s web\n  %[1]s web db"

// orders are the verbs that ask the running agent, with their help.
var orders = map[certificates.Verb][2]string{
	certificates.Renew: {"Renew service certificates now.",
		"The agent asks at once, with a new key unless the specification keeps it.\n" +
			"'certificate show' tells how that went."},
	certificates.Rekey: {"Renew service certificates now, with new keys.",
		"The key is a new one also if the specification keeps it: for keys that may be known."},
	certificates.Adopt: {"Keep the keys and certificates that are in place.",
		"Key and certificate at the paths of the specification stay until they are renewed."},
	certificates.Remove: {"Remove specifications of service certificates.",
		"Their files stay, or go if the specification or --revoke says so."},
}

// AddCertificate adds the noun certificate, about the service certificates of this node.
func AddCertificate(to Parent, all Verbs) {
	noun := to.Command("certificate", "Show and renew the service certificates of this node.").HelpLong(certificateHelp)
	type run = func(*certificateVerb, context.Context) error
	add := func(verb, help, long string, run run) (*certificateVerb, *kingpin.CmdClause) {
		v, c := &certificateVerb{out: os.Stdout}, noun.Command(verb, help)
		c.HelpLong(strings.ReplaceAll(long, "%[1]s", called(to, "certificate "+verb)))
		v.addPaths(c)
		all[c.FullCommand()] = func(ctx context.Context) error { return run(v, ctx) }
		return v, c
	}
	v, c := add("list", "List the service certificates of this node.", "  %[1]s\n  %[1]s -o wide",
		(*certificateVerb).list)
	v.output.Forms = cli.ListForms()
	v.output.AddFlags(c)
	v, c = add("show", "Show all about service certificates.", "  %[1]s web\n  %[1]s web -o json",
		(*certificateVerb).show)
	v.output.AddFlags(c)
	c.Arg("name", "Name of a service certificate.").Required().StringsVar(&v.names)
	v, c = add("check", "Check the service certificates, for monitoring.", checkHelp, (*certificateVerb).check)
	v.output.AddFlags(c)
	c.Arg("name", "Name of a service certificate. Default: all.").StringsVar(&v.names)
	for _, verb := range slices.Sorted(maps.Keys(orders)) {
		help := orders[verb]
		v, c = add(string(verb), help[0], help[1]+examples, (*certificateVerb).send)
		v.order.Verb = verb
		c.Arg("name", "Name of a service certificate.").Required().StringsVar(&v.names)
		if verb == certificates.Remove {
			cli.Flag(c, "revoke").BoolVar(&v.order.Revoke)
		}
	}
}

// statuses returns those that are asked for; without names, all.
func (v *certificateVerb) statuses() (list []certificates.Status, err error) {
	all, err := server.CertificateStatuses(v.cfg)
	for _, s := range all {
		if len(v.names) == 0 || slices.Contains(v.names, s.Name) {
			list = append(list, s)
		}
	}
	if err == nil && len(list) < len(v.names) {
		err = fmt.Errorf("not all of %q are service certificates of this node", v.names)
	}
	return list, err
}

type status = certificates.Status

var certificateColumns = []cli.Column[status]{
	{Title: "NAME", Value: func(s status) any { return s.Name }},
	{Title: "STATE", Value: func(s status) any { return stateOf(s) }},
	{Title: "NAMES", Value: func(s status) any { return s.Names }},
	{Title: "EXPIRES", Value: func(s status) any { return s.NotAfter }},
	{Title: "RENEWAL", Value: func(s status) any { return s.RenewAt }},
	{Title: "SOURCE", Wide: true, Value: func(s status) any { return s.Source }},
	{Title: "SERIAL", Wide: true, Value: func(s status) any { return s.Serial }},
	{Title: "NEXT TRY", Value: func(s status) any { return s.Next }},
	{Title: "NOTE", Value: func(s status) any { return cmp.Or(s.Reason, s.Error) }},
}

func stateOf(s status) string {
	if s.Stuck {
		return s.State + ", stuck"
	}
	return s.State
}

func (v *certificateVerb) list(context.Context) error {
	list, err := v.statuses()
	if err != nil {
		return err
	}
	return cli.WriteList(v.out, &v.output, map[string][]status{"certificates": list}, list, certificateColumns)
}

func (v *certificateVerb) show(context.Context) error {
	list, err := v.statuses()
	if err != nil {
		return err
	}
	if v.output.JSON() {
		return cli.WriteJSON(v.out, map[string][]status{"certificates": list})
	}
	var parts cli.Parts
	for _, s := range list {
		var l cli.Labels
		l.Add("Name", s.Name)
		l.Addf("State", "%s%s", stateOf(s), since(" since ", s.Since))
		l.AddIf("Reason", s.Reason)
		l.AddIf("What to do", s.Advice)
		l.AddIf("Last error", s.Error)
		l.AddIf("Next try", since("", s.Next))
		l.Add("Specification", s.Source)
		l.AddIf("Names", strings.Join(s.Names, "\n"))
		l.AddIf("Serial", s.Serial)
		l.AddIf("Valid until", since("", s.NotAfter))
		l.AddIf("Renewal", since("", s.RenewAt))
		for _, kind := range slices.Sorted(maps.Keys(s.Files)) {
			l.Addf("File", "%s: %s", kind, s.Files[kind])
		}
		if a := s.Action; a != nil {
			l.Addf("Action", "%s, exit status %d%s\n%s", a.Name, a.Exit, since(", ", a.At), strings.TrimSpace(a.Output))
		}
		parts = append(parts, &l)
	}
	_, err = io.WriteString(v.out, parts.String())
	return err
}

// since returns a time after a text, or "" for none.
func since(text string, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return text + t.Local().Format(time.RFC3339)
}

func (v *certificateVerb) check(context.Context) error {
	list, err := v.statuses()
	if err != nil {
		return cli.WithStatus(err, 2)
	}
	findings := server.CheckCertificates(list, time.Now())
	stuck, soon := count(findings, server.StatusFail), count(findings, server.StatusWarn)
	switch err = writeFindings(v.out, &v.output, findings); {
	case stuck > 0:
		err = cli.WithStatus(fmt.Errorf("%w: %d of %d stuck or expired", ErrUnhealthy, stuck, len(findings)), 2)
	case soon > 0:
		err = cli.WithStatus(fmt.Errorf("%w: %d of %d missing or end soon", ErrUnhealthy, soon, len(findings)), 1)
	}
	return err
}

// send asks the running agent for each name, also after an error.
func (v *certificateVerb) send(ctx context.Context) (err error) {
	for _, name := range v.names {
		v.order.Name = name
		answer, failed := v.ask(ctx, v.order)
		if failed == nil && answer.Error != "" {
			failed = errors.New(answer.Error)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		}
	}
	return err
}
