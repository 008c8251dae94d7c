// Package servercmd has the verbs run, doctor and buildinfo of both `muster` and `muster-server`. It links neither
// OPA nor nats-server; a test of cmd/muster-server checks this.
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

// called returns a verb's command line for examples.
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
	c.Flag("config", "Configuration, `key = value` lines. Made a symbolic link into the SSL directory when the node is provisioned. Default: "+server.DefaultConfFile+".").
		Default(server.DefaultConfFile).PlaceHolder("FILE").StringVar(&f.cfg.ConfFile)
	c.Flag("token",
		"Provisioning token. Default: /etc/provisioning.jwt, else /etc/choria/provisioning.jwt.").
		PlaceHolder("FILE").StringVar(&f.cfg.TokenFile)
	c.Flag("ssl-dir",
		"Directory of key, certificate, authority and all else that provisioning brings. Other files in it are left alone. Default: "+server.DefaultSSLDir+".").
		Default(server.DefaultSSLDir).PlaceHolder("DIR").StringVar(&f.cfg.SSLDir)
	c.Flag("identity", "Name of this node. Default: `identity` of the configuration, else the host name.").
		PlaceHolder("NAME").StringVar(&f.cfg.Identity)
	c.Flag("facts", "JSON object sent when enrolling. Default: the file that token or configuration name.").
		PlaceHolder("FILE").StringVar(&f.cfg.FactsFile)
	c.Validate(func(*kingpin.CmdClause) error {
		if f.cfg.Identity == "" {
			return nil
		}
		if _, err := wire.ParseIdentity(f.cfg.Identity); err != nil {
			return fmt.Errorf("--identity: %w", err)
		}
		return nil
	})
}
