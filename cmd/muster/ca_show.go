package main

import (
	"context"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
)

// showCAVerb is "muster ca show".
type showCAVerb struct{ setup }

const showCAHelp = `Prints the certificates that the configuration names: the present authority's and
those of the ones before it. No key is read. Whether one before is still needed,
the log of the running provisioner says.

  muster ca show
  muster ca show --json --config prov/provisioner.yaml`

func addCAShow(parent *kingpin.CmdClause, all verbs) {
	v := &showCAVerb{}
	c := parent.Command("show", "Show roots, issuing certificates and their ends.").HelpLong(showCAHelp)
	v.addSetup(c, "Configuration file of the provisioner.")
	all[c.FullCommand()] = v.run
}

func (v *showCAVerb) run(context.Context) error {
	authorities, err := daemon.ReadAuthorities(v.config)
	if err != nil {
		return orNoSetup(v.config, err)
	}
	return v.print(authorities, func() error { return writeAuthorities(authorities) })
}

// writeAuthorities tells a person which certificates there are.
func writeAuthorities(authorities []daemon.AuthorityInfo) error {
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
	_, err := t.WriteTo(os.Stdout)
	return err
}
