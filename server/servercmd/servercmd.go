// Package servercmd has the verbs of the node agent: run, doctor and
// buildinfo. Both commands have them, `muster` beside much else and
// `muster-server` alone, so they are here. The package links neither OPA nor
// nats-server; a test of cmd/muster-server sees to that.
//
// Each Add function adds a verb to what kingpin parses and puts what the verb
// does into a map by the verb's full name, for the command to dispatch.
package servercmd

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/server"
)

// Verbs is what a verb adds itself to.
type Verbs = cli.Verbs

// A Parent is a command, or the program, that a verb is added to.
type Parent interface {
	Command(name, help string) *kingpin.CmdClause
}

// called is how a verb that is added to a parent is called, for examples.
func called(to Parent, verb string) string {
	switch p := to.(type) {
	case *kingpin.Application:
		return p.Name + " " + verb
	case *kingpin.CmdClause:
		return "muster " + p.FullCommand() + " " + verb
	}
	return verb
}

// files are the flags that all verbs have: where things are, and never a
// secret.
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
