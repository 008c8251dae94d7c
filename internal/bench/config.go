package bench

import (
	"errors"
	"fmt"
	"os/exec"

	"muster/internal/wire"
	"muster/provisioner/choria"
)

// Keys and requests are in memory: about 2 KiB for each node, and for sealed requests also the size of its facts.
const maxNodes = 2_000_000

// A Wave is a group of nodes that end at the same step.
type Wave string

// The waves of a measurement.
const (
	WaveEnroll  Wave = "enrolled"    // up to the certificate
	WaveApplied Wave = "provisioned" // up to the recorded confirmation
)

// Config configures [Run]. Its fields are flags of `muster bench`.
type Config struct {
	Nodes        int
	FactsBytes   int // 0: 2 KB
	Connection   Connection
	Token        Token
	Waves        []Wave
	Rate         int // nodes a second; 0: as fast as possible
	Stored       int
	Idle         int
	Provisioners int // processes, with a separate broker; 0: one provisioner with its broker inside

	// Services measures service certificates instead of enrollments; Nodes is their number.
	Services bool

	// Choria makes the nodes Choria servers, which speak this version of its protocol. 0: they are muster's agents.
	Choria choria.Version

	Puppet Puppet

	// Program returns a command that runs this program with args. Required.
	Program func(args ...string) *exec.Cmd
}

// A Connection is how nodes connect.
type Connection struct {
	Shared bool // 16 connections for all nodes; false: one for each node
	TLS    bool
	Sealed bool
}

// A Token describes the provisioning token.
type Token struct {
	Key  string // "rsa4096" or "ed25519"
	Uses int    // 0: unlimited
	File string // a token whose brokers have a provisioner; empty: [Run] starts one
}

// Check returns every mistake in c, with the flags' names.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, n := range []struct {
		flag             string
		got, least, most int
	}{
		{"nodes", c.Nodes, 1, maxNodes},
		{"uses", c.Token.Uses, 0, maxNodes},
		{"stored", c.Stored, 0, maxNodes},
		{"idle", c.Idle, 0, 16_000}, // a process has about 20,000 descriptors
		{"provisioners", c.Provisioners, 0, 16},
	} {
		if n.got < n.least || n.got > n.most {
			bad("--%s is %d, want %d to %d", n.flag, n.got, n.least, n.most)
		}
	}
	if c.Provisioners > 0 && c.Stored > 0 {
		bad("--stored needs a provisioner with its broker inside: leave out --provisioners")
	}
	if c.Choria != 0 && c.Connection.Sealed {
		bad("--sealed is for muster's agents: leave out --choria")
	}
	if c.Token.File != "" && (c.Choria == 0 || c.Stored+c.Idle+c.Provisioners > 0) {
		bad("--token-file needs --choria, and no flag for a provisioner that the bench starts")
	}
	other := c.Puppet.URL != ""
	if other != (c.Puppet.Login != "") || other && !c.Puppet.Enabled {
		bad("--url and --login belong together, and to --puppet")
	}
	if c.Puppet.Enabled &&
		(c.Choria != 0 || c.Connection.Sealed || c.Provisioners > 0 || other && c.Stored+c.Idle > 0) {
		bad("--puppet takes none of --choria, --sealed and --provisioners, and with --url not --stored and --idle")
	}
	if c.Services && (c.Choria != 0 || c.Puppet.Enabled || c.Connection.Sealed || c.Idle > 0 || c.Rate > 0 ||
		c.Nodes > serviceNodes*wire.MaxCertificates) {
		bad("--service-certificates takes no --choria, --puppet, --sealed, --idle or --rate, and --nodes up to %d",
			serviceNodes*wire.MaxCertificates)
	}
	return errors.Join(errs...)
}
