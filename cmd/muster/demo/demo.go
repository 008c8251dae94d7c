// Package demo implements "muster demo": a fleet of real agents on this machine.
package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/demo"
)

// flags holds the flags of "muster demo".
type flags struct {
	verb.Output
	nodes int
	keep  string
	stay  bool
}

const help = `Starts a provisioner with its broker, and real agents on loopback, each with its own
directory and TCP connection. Every node joins the fleet over mutual TLS.

With --stay, the fleet stays until Ctrl-C, for you to operate: with operators of each
role, the API and the console, and nodes that are pending, refused or revoked. The
demo prints commands to try.

  muster demo
  muster demo --nodes 1000 --files demo  # leaves logs and files
  muster demo --stay --nodes 2000

Exits with 0 if every node is provisioned, 1 if not, 2 if the command line is wrong.`

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	v := &flags{}
	c := app.Command("demo", "See muster at work: a fleet of 200 agents on this machine.").HelpLong(help)
	cli.Int(cli.Flag(c, "nodes").Default("200"), &v.nodes)
	cli.Flag(c, "files").StringVar(&v.keep)
	cli.Flag(c, "stay").BoolVar(&v.stay)
	v.AddFlags(c)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

func (v *flags) check() error {
	least := 1
	if v.stay {
		least = demo.MinStay
	}
	if v.nodes < least || v.nodes > demo.MaxNodes {
		return fmt.Errorf("--nodes is %d, want %d to %d", v.nodes, least, demo.MaxNodes)
	}
	return nil
}

func (v *flags) run(ctx context.Context) error {
	dir := v.keep
	if dir == "" {
		temporary, err := os.MkdirTemp("", "muster-demo-")
		if err != nil {
			return fmt.Errorf("%w: set TMPDIR to a directory for it, or give one with --files", err)
		}
		defer func() { _ = os.RemoveAll(temporary) }() // on failure, the directory stays
		dir = filepath.Join(temporary, "demo")
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--files: %w", err)
	}
	cfg := demo.Config{Nodes: v.nodes, Dir: dir, Version: cli.Version(), Progress: progress}
	if v.stay {
		return v.runStay(ctx, cfg)
	}
	r, err := demo.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if v.keep == "" {
		r.Dir, r.Example = "", ""
	}
	if err := verb.Show(&v.Output, r, result); err != nil {
		return err
	}
	if len(r.Missing) > 0 {
		return fmt.Errorf("%d checks failed, the first: %s", len(r.Missing), r.Missing[0])
	}
	return nil
}

func progress(label string, nodes int) (one, end func()) {
	bar := cli.NewProgress(os.Stderr, label, "nodes", nodes)
	return func() { bar.Add(1) }, bar.Done
}

// runStay is "muster demo --stay".
func (v *flags) runStay(ctx context.Context, cfg demo.Config) (err error) {
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil { // so that printed paths are valid in any directory
		return err
	}
	err = demo.Stay(ctx, cfg, func(p *demo.Place) {
		_ = verb.Show(&v.Output, p, place) // the demo runs on if the output is closed
	})
	if err == nil && v.keep != "" {
		verb.Say("the files are in %s", verb.Quoted(cfg.Dir))
	}
	return err
}

// place describes the running fleet, with commands to try.
func place(p *demo.Place) fmt.Stringer {
	parts := cli.NewTable("NODES", "WHAT THEY ARE", "SUCH AS")
	operators := cli.NewTable("OPERATOR", "ROLE", "CERTIFICATE", "TOKEN")
	examples := map[string]string{}
	for _, part := range p.Parts {
		parts.Add(fmt.Sprint(part.Nodes), part.What, part.Example)
		examples[part.Name] = part.Example
	}
	for _, o := range p.Operators {
		operators.Add(o.Name, string(o.Role), filepath.Base(o.Credential), filepath.Base(o.TokenFile))
	}
	o := p.Operators[0]
	text := fmt.Sprintf(toTry, filepath.Dir(o.Credential), p.URL, o.TokenFile, p.URL, o.Credential,
		examples["waiting"], examples["members"], examples["denied"])
	return cli.Parts{parts, operators, cli.Text(text)}
}

// toTry formats the commands to try.
const toTry = `Their files are in %s.

In a browser, which does not know the demo's authority: %s
Sign in with what this prints: cat %s

In another terminal:

  export MUSTER_URL=%s MUSTER_LOGIN=%s
  muster status
  muster node list --state provisioned
  muster node pending
  muster node approve %s --why 'rack 4'
  muster node history %s
  muster node explain %s
  muster node reprovision --match 'web*.example.net' --why 'new configuration'
  muster token list
  muster events --follow

Ctrl-C ends it.
`

func result(r *demo.Result) fmt.Stringer {
	t := &cli.Table{}
	row := func(label, format string, args ...any) { t.Add(label, fmt.Sprintf(format, args...)) }
	row("provisioned", "%d of %d nodes, in the fleet over mutual TLS", r.Provisioned, r.Nodes)
	row("rate", "%.0f nodes a minute (%d in %.2f s)", r.NodesPerMinute, r.Provisioned, r.Seconds)
	if r.Example != "" {
		row("files of one node", "%s", r.Example)
		row("logs", "%s, agents.log", filepath.Join(r.Dir, "provisioner.log"))
	}
	return t
}
