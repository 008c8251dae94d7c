package bench

import (
	"errors"
	"fmt"
	"os/exec"

	"muster/internal/wire"
)

// maxNodes bounds the nodes of a wave, the uses of a token and the records. Keys and requests are held in memory,
// about 2 KiB a node, and for a sealed one as much as its facts on top.
const maxNodes = 2_000_000

// A Wave is how far nodes go.
type Wave string

// The waves.
const (
	WaveEnroll  Wave = "enrolled"    // to the certificate: nothing is confirmed
	WaveApplied Wave = "provisioned" // to the confirmation that is on record
)

// Config configures [Run]. Its fields are flags of `muster bench`.
type Config struct {
	Nodes        int
	Concurrency  int
	FactsBytes   int
	Connection   Connection
	Token        Token
	Policy       []byte // Rego; nil is the built-in policy
	Waves        []Wave // one after the other, Nodes each
	Rate         float64
	Stored       int    // records in the store beforehand
	Idle         int    // nodes connected over mutual TLS meanwhile
	Provisioners int    // beside a broker with a process of its own; 0 is one with its broker inside
	Dir          string // for the temporary directory; empty is the system's

	// Program starts this program with other arguments. Required.
	Program func(args ...string) *exec.Cmd
}

// A Connection is how nodes connect.
type Connection struct {
	Shared bool // 16 connections for all nodes, or one each
	TLS    bool
	Sealed bool
}

// A Token is what the provisioning token is like.
type Token struct {
	Key  string // "rsa4096" or "ed25519"
	Uses int    // 0 is unlimited
}

// Check returns everything that is wrong with c, one line each, with the flag's name.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, n := range []struct {
		flag             string
		got, least, most int
	}{
		{"nodes", c.Nodes, 1, maxNodes},
		{"concurrency", c.Concurrency, 1, 10_000},
		{"facts-bytes", c.FactsBytes, minFacts, wire.MaxFactsBytes},
		{"uses", c.Token.Uses, 0, maxNodes},
		{"stored", c.Stored, 0, maxNodes},
		{"idle", c.Idle, 0, 16_000}, // a process has about 20,000 descriptors,
		{"provisioners", c.Provisioners, 0, 16},
	} {
		if n.got < n.least || n.got > n.most {
			bad("--%s is %d, want %d to %d", n.flag, n.got, n.least, n.most)
		}
	}
	if c.Provisioners > 0 && c.Stored > 0 {
		bad("--stored with --provisioners: records are put into the store of a provisioner with its broker inside")
	}
	return errors.Join(errs...)
}
