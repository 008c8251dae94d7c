package status

import (
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

const componentsHelp = `Lists every provisioner of the installation with its features and what has become of
them. A feature that has failed says why, and stays listed until it is mended. A
provisioner that has stopped, or said nothing for 15 seconds, is listed as gone, and
since when.

  muster components
  muster components --all --json`

func addComponents(app *kingpin.Application, all cli.Verbs) {
	var disabled bool
	c := app.Command("components", "Show every provisioner and its features.").HelpLong(componentsHelp)
	c.Flag("all", "Features that are disabled, too.").BoolVar(&disabled)
	verb.List(c, all, "/v1/components", func(o *verb.Operator, list *httpapi.ComponentList) io.WriterTo {
		if list.Incomplete != "" {
			o.Say("warning: %s", list.Incomplete)
		}
		t := cli.NewTable("PROVISIONER", "VERSION", "SITE", "SINCE", "LAST HEARD", "FEATURE", "STATE", "WHY", "CAPABILITIES")
		for _, c := range list.Components {
			addRows(t, c, disabled)
		}
		return t
	})
}

// addRows adds a row for each feature of a provisioner, one at least.
func addRows(t *cli.Table, c *fleet.HeardComponent, disabled bool) {
	heard := verb.Instant(c.Heard)
	if c.Gone {
		heard = "gone since " + heard
	}
	add := func(cells ...string) {
		t.Add(append([]string{c.Name, c.Version, verb.OrDash(c.Site), verb.Instant(c.Since), heard}, cells...)...)
	}
	shown := false
	for _, f := range c.Features {
		// What the features of one that is gone were says nothing now; --json has it.
		if c.Gone || f.State == fleet.FeatureDisabled && f.Reason == "" && !disabled {
			continue
		}
		add(f.Name, string(f.State), verb.OrDash(f.Reason), verb.OrDash(strings.Join(f.Capabilities, " ")))
		shown = true
	}
	switch {
	case shown:
	case c.Stopped:
		add("-", "-", "it was stopped", "-")
	case c.Gone:
		add("-", "-", "it has said nothing for "+time.Since(c.Heard).Round(time.Second).String(), "-")
	default:
		add("-", "-", "-", "-")
	}
}
