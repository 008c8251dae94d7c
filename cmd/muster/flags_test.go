package main

import (
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/server/servercmd"
)

// TestFlagHasOneMeaningEverywhere holds every flag of every verb of both programs to the one table of flags, and the
// table to the verbs: one name, one placeholder, one help text.
func TestFlagHasOneMeaningEverywhere(t *testing.T) {
	t.Parallel()
	muster, server := kingpin.New(program, ""), kingpin.New("muster-server", "")
	addVerbs(muster, verbs{})
	servercmd.AddRun(server, verbs{})
	servercmd.AddDoctor(server, verbs{})
	servercmd.AddCertificate(server, verbs{})
	servercmd.AddCertmonger(server, verbs{})
	servercmd.AddVersion(server, verbs{})
	used := map[string]bool{}
	var look func(*kingpin.CmdGroupModel)
	look = func(group *kingpin.CmdGroupModel) {
		for _, c := range group.Commands {
			for _, f := range c.Flags {
				used[f.Name] = true
				value, help, ok := cli.FlagText(f.Name)
				if !ok {
					t.Errorf("%s --%s is not in the table of flags", c.FullCommand, f.Name)
				} else if f.Help != help || f.PlaceHolder != value {
					t.Errorf("%s --%s %s: %q, and the table says %s: %q", c.FullCommand, f.Name, f.PlaceHolder, f.Help, value, help)
				}
				if !f.IsBoolFlag() && value == "" || f.IsBoolFlag() && value != "" {
					t.Errorf("%s --%s: the table has the placeholder %q", c.FullCommand, f.Name, value)
				}
			}
			look(c.CmdGroupModel)
		}
	}
	look(muster.Model().CmdGroupModel)
	look(server.Model().CmdGroupModel)
	for _, name := range cli.FlagNames() {
		if !used[name] {
			t.Errorf("no verb has --%s of the table", name)
		}
	}
}
