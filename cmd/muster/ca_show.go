package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
)

// showCAVerb is "muster ca show".
type showCAVerb struct {
	config string
	json   bool
}

const showCAHelp = `Prints the certificates that the configuration names: the present authority's and
those of the ones before it. No key is read. Whether one before is still needed,
the log of the running provisioner says.

  muster ca show
  muster ca show --json --config prov/provisioner.yaml`

func addCAShow(parent *kingpin.CmdClause, all verbs) {
	v := &showCAVerb{}
	c := parent.Command("show", "Show roots, issuing certificates and their ends.").HelpLong(showCAHelp)
	c.Flag("config", "Configuration file.").Default(defaultConfig).PlaceHolder("FILE").StringVar(&v.config)
	c.Flag("json", "Print a list of objects.").BoolVar(&v.json)
	all[c.FullCommand()] = v.run
}

func (v *showCAVerb) run(context.Context) error {
	authorities, err := daemon.ReadAuthorities(v.config)
	if err != nil {
		return orNoSetup(v.config, err)
	}
	if v.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(authorities)
	}
	var t cli.Table
	t.Add("", "certificate", "valid until", "sha256")
	now := time.Now()
	for _, a := range authorities {
		which := "present"
		if !a.Present {
			which = "previous"
		}
		for _, c := range a.Certificates() {
			end := c.NotAfter.UTC().Format(time.DateOnly)
			if now.After(c.NotAfter) {
				end += " (expired)"
			}
			t.Add(which, c.What+" "+c.Name, end, c.Fingerprint)
			which = ""
		}
	}
	_, err = t.WriteTo(os.Stdout)
	return err
}
