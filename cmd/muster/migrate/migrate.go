// Package migrate implements "muster migrate": coming from another provisioner.
package migrate

import (
	"context"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/migrate"
	"muster/internal/setup"
)

const help = `Shows what the settings of another provisioner are in muster, and makes a setup with
them. docs/migrate-from-choria.md describes the way there and back.`

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("migrate", "Come from another provisioner.").HelpLong(help)
	addChoria(c, all)
}

// choria holds the flags of "muster migrate choria".
type choria struct {
	output    cli.Output
	file, out string
	setup.Installation
}

const choriaHelp = `Reads the configuration of Choria's provisioner, and shows for each setting what it is
in muster: kept, done otherwise, none, or todo for an operator. With --out, it also
makes a setup as 'muster provisioner init' does, with the settings that are kept. The
directory must be missing or empty. Nothing that CONFIG names is changed, and no
secret is printed.

  muster migrate choria choria-provisioner.yaml
  muster migrate choria choria-provisioner.yaml --out prov --listen :4222

Exits with 1 if CONFIG has mistakes, which are all named with their lines, or if the
setup cannot be made.`

func addChoria(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &choria{output: cli.Output{Forms: cli.ListForms()}}
	c := parent.Command("choria", "Come from Choria's provisioner.").HelpLong(choriaHelp)
	c.Arg("config", "Its configuration, such as choria-provisioner.yaml.").Required().StringVar(&v.file)
	cli.Flag(c, "out").StringVar(&v.out)
	cli.Flag(c, "host").StringVar(&v.Name)
	cli.Flag(c, "trust-domain").StringVar(&v.TrustDomain)
	cli.Flag(c, "listen").Default("127.0.0.1:4222").StringVar(&v.Listen)
	v.output.AddFlags(c)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

func (v *choria) check() error {
	if v.out == "" {
		return nil
	}
	v.NameByHost()
	return v.Check()
}

var columns = []cli.Column[migrate.Setting]{
	{Title: "SETTING", Value: func(s migrate.Setting) any { return s.Key }},
	{Title: "RESULT", Value: func(s migrate.Setting) any { return s.Result }},
	{Title: "MUSTER", Value: func(s migrate.Setting) any { return s.Muster }},
	{Title: "NOTE", Value: func(s migrate.Setting) any { return s.Note }},
	{Title: "LINE", Wide: true, Value: func(s migrate.Setting) any { return s.Line }},
}

func (v *choria) run(context.Context) error {
	plan, err := migrate.Choria(v.file)
	if err != nil {
		return err
	}
	if v.out != "" {
		v.Site, v.Choria = plan.Site, plan.Choria
		if err := setup.Init(v.out, v.Installation); err != nil {
			return err
		}
		verb.Say("%s is ready; check it with: muster provisioner run --validate --config %s", verb.Quoted(v.out),
			verb.Quoted(filepath.Join(v.out, "provisioner.yaml")))
	}
	answer := map[string][]migrate.Setting{"settings": plan.Settings}
	return cli.WriteList(os.Stdout, &v.output, answer, plan.Settings, columns)
}
