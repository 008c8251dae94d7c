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

const certificateHelp = `Certificates that this node has besides its own, for haproxy, a database or a
message broker. A file /etc/muster/certificates.d/NAME.yaml asks for one, or the
policy of the fleet does; the running agent keeps it:

  dns_names: ["{{.identity}}"]
  files: {combined: {path: /etc/muster/tls/web.pem}}
  action: reload-haproxy   # of /etc/muster/actions.d/reload-haproxy.yaml`

const checkHelp = `Prints a line for each: ok, warn or fail, its name, the result, and what to do.

  %[1]s
  %[1]s web -o json

Exits with 0 if all are in place, 1 if one is not there yet or ends soon (less than a
sixth of its life is left), 2 if one is stuck or has expired.`

// orders are the verbs that ask the running agent.
var orders = map[certificates.Verb]string{
	certificates.Renew:  "Renew service certificates now. 'certificate show' tells how that went.",
	certificates.Rekey:  "Renew service certificates now, with new keys even if the specification keeps them.",
	certificates.Adopt:  "Keep the keys and certificates that are in place until they are to be renewed.",
	certificates.Remove: "Remove specifications. The files stay, or go if the specification or --revoke says so.",
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
		(*certificateVerb).list)
	v.output.AddFlags(c)
	c.Arg("name", "Name of a service certificate.").Required().StringsVar(&v.names)
	v, c = add("check", "Check the service certificates, for monitoring.", checkHelp, (*certificateVerb).check)
	v.output.AddFlags(c)
	c.Arg("name", "Name of a service certificate. Default: all.").StringsVar(&v.names)
	for _, verb := range slices.Sorted(maps.Keys(orders)) {
		v, c = add(string(verb), orders[verb], "  %[1]s web\n  %[1]s web db", (*certificateVerb).send)
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
	{Title: "STATE", Value: func(s status) any { return s.State + map[bool]string{true: ", stuck"}[s.Stuck] }},
	{Title: "NAMES", Value: func(s status) any { return s.Names }},
	{Title: "EXPIRES", Value: func(s status) any { return s.NotAfter }},
	{Title: "RENEWAL", Value: func(s status) any { return s.RenewAt }},
	{Title: "NEXT TRY", Value: func(s status) any { return s.Next }},
	{Title: "NOTE", Value: func(s status) any { return cmp.Or(s.Reason, s.Error) }},
	{Title: "TO DO", Wide: true, Value: func(s status) any { return s.Advice }},
	{Title: "SOURCE", Wide: true, Value: func(s status) any { return s.Source }},
	{Title: "SERIAL", Wide: true, Value: func(s status) any { return s.Serial }},
	{Title: "FILES", Wide: true, Value: func(s status) any { return slices.Sorted(maps.Values(s.Files)) }},
	{Title: "ACTION", Wide: true, Value: func(s status) any { return actionOf(s.Action) }},
}

func actionOf(a *certificates.ActionResult) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s, exit status %d: %s", a.Name, a.Exit, strings.TrimSpace(a.Output))
}

// list shows a row for each certificate, or a block for each that is named.
func (v *certificateVerb) list(context.Context) error {
	list, err := v.statuses()
	if err != nil {
		return err
	}
	switch {
	case len(list) == 0 && v.output.ForPeople():
		cli.Say(os.Stderr, "muster-server", "this node has no service certificates")
		return nil
	case len(v.names) == 0 || v.output.JSON():
		return cli.WriteList(v.out, &v.output, map[string][]status{"certificates": list}, list, certificateColumns)
	}
	var parts cli.Parts
	for _, s := range list {
		parts = append(parts, cli.NewLabels(&v.output, s, certificateColumns))
	}
	_, err = io.WriteString(v.out, parts.String())
	return err
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
		if _, failed := v.ask(ctx, v.order); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		}
	}
	return err
}
