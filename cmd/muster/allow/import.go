package allow

import (
	"context"
	"fmt"

	"muster/provisioner/orders"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const importHelp = `Makes the entries of one source equal to a file: missing entries are added, other
entries are changed or ended. Entries of operators and of other sources stay.
Importing the same file again is harmless, and completes an import that was
interrupted. FILE is
YAML:

  allow:
    - pattern: web*.example.net
      comment: rack 12
      expires: 2027-01-31T12:00:00Z
      without_token: true # also Puppet agents that have no token

  muster allow import racks.yaml --source racks --dry-run
  muster allow import racks.yaml --source racks --why 'order 4711'`

// importFlags holds the flags of "muster allow import".
type importFlags struct {
	path   string
	source string
	iKnow  bool
	dryRun bool
}

func addImport(parent *kingpin.CmdClause, all cli.Verbs) {
	f := &importFlags{}
	c := parent.Command("import", "Replace the entries of one source by a file.").HelpLong(importHelp)
	c.Arg("file", "The entries, in YAML.").Required().StringVar(&f.path)
	cli.Flag(c, "source").Required().StringVar(&f.source)
	cli.Flag(c, "dry-run").BoolVar(&f.dryRun)
	cli.Flag(c, "any-name").BoolVar(&f.iKnow)
	all.Check(c, func() error { return verb.Flag("source", orders.CheckAllowSource(f.source)) })
	verb.Order(c, all, f.send, f.show)
}

func (f *importFlags) send(ctx context.Context, o *verb.Operator) (*operate.Imported, error) {
	var file struct {
		Allow []operate.Listed `yaml:"allow"`
	}
	if err := conffile.LoadYAML(f.path, inputfile.Typed, &file); err != nil {
		return nil, err
	}
	if file.Allow == nil { // an empty file would end all entries of the source
		return nil, fmt.Errorf("%s: no allow: want a list of entries, or `allow: []` to end all of this source", f.path)
	}
	list := operate.List{Source: f.source, Entries: append([]operate.Listed{}, file.Allow...), Everything: f.iKnow}
	order := httpapi.AllowImport{List: list, DryRun: f.dryRun, Why: o.Why}
	return verb.Post[*operate.Imported](ctx, o, "/v1/allow/import", order)
}

func (f *importFlags) show(o *verb.Operator, done *operate.Imported) fmt.Stringer {
	t := cli.NewTable("CHANGE", "PATTERN")
	for _, c := range []struct {
		change   string
		patterns []wire.Pattern
	}{{"add", done.Added}, {"change", done.Changed}, {"end", done.Ended}, {"keep", done.Kept}} {
		for _, p := range c.patterns {
			t.Add(c.change, string(p))
		}
	}
	if len(done.Kept) > 0 {
		o.After("keep: an entry of an operator or of another source is not changed; see `muster allow list`")
	}
	if f.dryRun {
		o.After("dry run: nothing was changed")
	}
	changes := len(done.Added) + len(done.Changed) + len(done.Ended)
	o.After("%s, %s unchanged", verb.Counted(changes, "change", "changes"),
		verb.Counted(done.Unchanged, "entry", "entries"))
	if changes+len(done.Kept) == 0 {
		return nil
	}
	return t
}
