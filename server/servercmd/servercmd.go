// Package servercmd has the verbs run, doctor and version of both `muster` and `muster-server`. It links neither OPA
// nor nats-server; a test of cmd/muster-server checks this.
package servercmd

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/server"
)

// Verbs maps full names to verbs, for the command to dispatch.
type Verbs = cli.Verbs

// A Parent is the program or a command that gets a verb.
type Parent interface {
	Command(name, help string) *kingpin.CmdClause
}

func called(to Parent, verb string) string {
	switch p := to.(type) {
	case *kingpin.Application:
		return p.Name + " " + verb
	case *kingpin.CmdClause:
		return "muster " + p.FullCommand() + " " + verb
	}
	return verb
}

// files are the flags of all verbs; none is a secret.
type files struct {
	cfg server.Config
}

func (f *files) add(c *kingpin.CmdClause) {
	cli.Flag(c, "config").Default(server.DefaultConfFile).StringVar(&f.cfg.ConfFile)
	cli.Flag(c, "token-file").StringVar(&f.cfg.TokenFile)
	cli.Flag(c, "ssl-dir").Default(server.DefaultSSLDir).StringVar(&f.cfg.SSLDir)
	cli.Flag(c, "identity").StringVar(&f.cfg.Identity)
	cli.Flag(c, "facts").StringVar(&f.cfg.FactsFile)
	c.Validate(func(*kingpin.CmdClause) error {
		if f.cfg.Identity == "" {
			return nil
		}
		if _, err := wire.ParseName(f.cfg.Identity); err != nil {
			return fmt.Errorf("--identity: %w", err)
		}
		return nil
	})
}
