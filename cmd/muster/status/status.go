// Package status implements "muster status".
package status

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

const help = `Shows the installation on one screen: provisioners, nodes by state, what was enrolled
and refused lately on all provisioners, pending nodes, and what needs an operator.

  muster status
  muster status --check -o json  # for a monitor

Exits with 0 if the provisioner answers, 1 if not, or with --check if something needs
an operator, 2 if the command line is wrong.`

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	var check bool
	c := app.Command("status", "Show the state of the installation.").HelpLong(help)
	cli.Flag(c, "check").BoolVar(&check)
	var standing []string
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.Status, error) {
		s, err := verb.Get[*httpapi.Status](ctx, o, "/v1/status")
		if err == nil && check {
			standing = s.Standing
		}
		return s, err
	}, show)
	ask := all[c.FullCommand()]
	all[c.FullCommand()] = func(ctx context.Context) error {
		if err := ask(ctx); err != nil || len(standing) == 0 {
			return err
		}
		return fmt.Errorf("%s, the first: %s", verb.Counted(len(standing), "problem", "problems"), standing[0])
	}
}

func show(_ *verb.Operator, s *httpapi.Status) fmt.Stringer {
	l := &cli.Labels{}
	l.Add("Installation", s.Installation)
	for _, p := range s.Provisioners {
		how := "running since " + verb.Instant(p.Since)
		if p.Gone {
			how = "not running since " + verb.Instant(p.Heard)
		} else if len(p.Features) > 0 {
			how += ", " + verb.Counted(len(p.Features), "feature has failed", "features have failed")
		}
		l.Addf("Provisioner", "%s %s, %s", p.Name, p.Version, how)
	}
	if n := s.Nodes; n != nil {
		l.Addf("Nodes", "%d (%s)", n.Total, verb.Tallied(n.States))
		l.Addf("Connected", "%d of %d", n.Connected[fleet.Yes], n.Connected[fleet.Yes]+n.Connected[fleet.No])
		if unknown := n.Connected[fleet.Unknown]; unknown > 0 {
			l.Addf("Connection unknown", "%d", unknown)
		}
		l.Addf("Certificates", "%d expire within a day, %d within a week, %d have expired", n.Day, n.Week, n.Expired)
	}
	if c := s.Certificates; c != nil && c.Total > 0 {
		l.Addf("Service certificates", "%d (%s), %d stuck", c.Total, verb.Tallied(c.States), c.Stuck)
	}
	l.Addf("Pending nodes", "%d", s.Waiting)
	if a := s.Activity; a != nil {
		l.Addf("Last hour", "%d enrolled, %d renewed", a.Enrolled, a.Renewed)
		l.Add("Refused in the last hour", verb.Tallied(a.Refused))
	}
	l.Add("Problems", cmp.Or(strings.Join(s.Standing, "\n"), "none"))
	return l
}
