package main

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// componentsVerb is "muster components".
type componentsVerb struct {
	operator
	all bool
}

const componentsHelp = `Lists every provisioner of the installation with its features and what has become of
them. A feature that has failed says why, and stays listed until it is mended. A
provisioner that has stopped, or said nothing for 15 seconds, is listed as gone, and
since when.

  muster components
  muster components --all --json`

// addComponents adds "muster components".
func addComponents(app *kingpin.Application, all verbs) {
	v := &componentsVerb{}
	c := app.Command("components", "Show every provisioner and its features.").HelpLong(componentsHelp)
	c.Flag("all", "Features that are disabled, too.").BoolVar(&v.all)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *componentsVerb) run(ctx context.Context) error {
	var list httpapi.ComponentList
	if err := v.ask(ctx, http.MethodGet, "/v1/components", nil, &list); err != nil {
		return err
	}
	return v.print(&list, func() error {
		if list.Incomplete != "" {
			v.say("warning: %s", list.Incomplete)
		}
		var t cli.Table
		t.Add("PROVISIONER", "VERSION", "SITE", "SINCE", "LAST HEARD", "FEATURE", "STATE", "WHY", "CAPABILITIES")
		for _, c := range list.Components {
			heard := instant(c.Heard)
			if c.Gone {
				heard = "gone since " + heard
			}
			shown := false
			for _, f := range c.Features {
				if c.Gone || f.State == provisioner.FeatureDisabled && f.Reason == "" && !v.all {
					continue
				}
				t.Add(c.Name, c.Version, cmp.Or(string(c.Site), "-"), instant(c.Since), heard, f.Name, string(f.State), cmp.Or(f.Reason, "-"), cmp.Or(strings.Join(f.Capabilities, " "), "-"))
				shown = true
			}
			if !shown { // what its features were says nothing now; --json has it
				t.Add(c.Name, c.Version, cmp.Or(string(c.Site), "-"), instant(c.Since), heard, "-", "-", goneWhy(c), "-")
			}
		}
		_, err := t.WriteTo(os.Stdout)
		return err
	})
}

// goneWhy says how a provisioner went.
func goneWhy(c *provisioner.HeardComponent) string {
	switch {
	case c.Stopped:
		return "it was stopped"
	case c.Gone:
		return "it has said nothing for " + time.Since(c.Heard).Round(time.Second).String()
	}
	return "-"
}
