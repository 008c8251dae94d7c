package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner/httpapi"
)

// statusVerb is "muster status".
type statusVerb struct {
	operator
	check bool
}

const statusHelp = `Shows the installation on one screen: provisioners, machines by state, what was enrolled and
refused lately on all provisioners together, who waits, and what somebody should do
something about.

  muster status
  muster status --check --json  # for a monitor

Exits with 0 if it could be asked, 1 if not, or with --check if anything stands, 2 if
the command line makes no sense.`

// addStatus adds "muster status".
func addStatus(app *kingpin.Application, all verbs) {
	v := &statusVerb{}
	c := app.Command("status", "Show how the installation is.").HelpLong(statusHelp)
	c.Flag("check", "Exit with 1 if there is anything that somebody should do something about.").BoolVar(&v.check)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *statusVerb) run(ctx context.Context) error {
	var s httpapi.Status
	if err := v.ask(ctx, http.MethodGet, "/v1/status", nil, &s); err != nil {
		return err
	}
	if err := v.print(&s, func() error { return writeStatus(&s) }); err != nil {
		return err
	}
	if n := len(s.Standing); v.check && n > 0 {
		return fmt.Errorf("%s, the first: %s", counted(n, "matter stands", "matters stand"), s.Standing[0])
	}
	return nil
}

// writeStatus prints it for a person.
func writeStatus(s *httpapi.Status) error {
	var l cli.Labels
	l.Add("Installation", s.Installation)
	for _, p := range s.Provisioners {
		how := "since " + instant(p.Since)
		if p.Gone {
			how = "gone since " + instant(p.Heard)
		} else if len(p.Features) > 0 {
			how += ", " + counted(len(p.Features), "feature has failed", "features have failed")
		}
		l.Addf("Provisioner", "%s %s, %s", p.Name, p.Version, how)
	}
	if n := s.Nodes; n != nil {
		l.Addf("Machines", "%d (%s)", n.Total, tallied(n.States))
		l.Addf("Certificates", "%d end within a day, %d within a week, %d have ended", n.Day, n.Week, n.Expired)
	}
	l.Addf("Waiting", "%d", s.Waiting)
	l.Addf("Last minute", "%d enrolled, %d renewed", s.Activity.Enrolled, s.Activity.Renewed)
	l.Add("Refused in the last hour", tallied(s.Activity.Refused))
	l.Add("Standing", cmp.Or(strings.Join(s.Standing, "\n"), "nothing"))
	_, err := l.WriteTo(os.Stdout)
	return err
}

// tallied lists counts, the largest first.
func tallied[K ~string, N int | int64](counts map[K]N) string {
	keys := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(counts[b], counts[a]) })
	var list []string
	for _, k := range keys {
		list = append(list, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}
