package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/provisioner/httpapi"
)

// operator is what the verbs that ask the running provisioner have in common.
type operator struct {
	config string
	json   bool
	why    string
}

// add adds the flags of a verb that only looks.
func (o *operator) add(c *kingpin.CmdClause) {
	c.Flag("config", "Configuration file of the running provisioner.").Default(defaultConfig).PlaceHolder("FILE").StringVar(&o.config)
	c.Flag("json", "Print JSON for programs.").BoolVar(&o.json)
}

// addChange adds the flags of a verb that changes something.
func (o *operator) addChange(c *kingpin.CmdClause) {
	o.add(c)
	c.Flag("why", "Reason, for the history.").PlaceHolder("TEXT").StringVar(&o.why)
}

// ask sends one request to the provisioner; see [httpapi.Client.Do].
func (o *operator) ask(ctx context.Context, method, path string, in, out any) error {
	socket, err := daemon.SocketOf(o.config)
	if err != nil {
		return err
	}
	return httpapi.NewClient(socket).Do(ctx, method, path, in, out)
}

// print writes an answer: as JSON, or as text by what is given.
func (o *operator) print(answer any, text func() error) error {
	if !o.json {
		return text()
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(answer)
}

// say tells a person what was done; programs have the JSON.
func (o *operator) say(format string, args ...any) {
	if !o.json {
		cli.Say(os.Stderr, program, format, args...)
	}
}
