package bench

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"time"

	"muster/internal/wire"
)

// Limits of a [Config]. Keys and requests are held in memory, some 2 KiB a
// node and for a sealed one as much as its facts on top; a machine has 65,536
// ports and a process about 20,000 descriptors.
const (
	MaxNodes        = 2_000_000
	MaxConcurrency  = 10_000
	MaxDrivers      = 16
	MaxProvisioners = 16
	MaxIdle         = 16_000
)

// A Wave says how far nodes go.
type Wave string

// The waves.
const (
	WaveEnroll  Wave = "enrolled"    // to the certificate: nothing is confirmed
	WaveApplied Wave = "provisioned" // all the way: the confirmation is on record
)

// Config configures [Run]. Fields are flags of `muster bench`.
type Config struct {
	Nodes       int
	Concurrency int
	Shared      bool // all nodes of a driver over 16 connections, or one each
	TLS         bool
	Sealed      bool
	TokenKey    string // "rsa4096" or "ed25519"
	Uses        int    // of the token; 0 is unlimited
	FactsBytes  int
	Policy      string // file that --policy names; empty is the built-in one of about 30 lines
	Rego        []byte // what is in it
	Waves       []Wave // one after the other, Nodes each
	Rate        float64
	Duration    time.Duration
	Drivers     int
	Stored      int // records in the store beforehand
	Idle        int // nodes connected over mutual TLS meanwhile
	Kick        int // instead of waves: nodes that are provisioned, connected, and all sent back to be provisioned again; 0 for none

	// Provisioners is how many there are at a broker of its own process, which
	// asks them by auth callout. 0 is one with its broker inside.
	Provisioners int

	URL       string // of a running broker; empty starts a provisioner
	TokenFile string // that --token names, for URL
	Token     string // what is in it
	PIDs      []int  // serving processes, for URL

	Dir           string // for the temporary directory; empty is the system's
	Profile       string // file for a CPU profile of the provisioner
	DriverProfile string // file for a CPU profile of the first driver

	// Program starts this program with other arguments. Required.
	Program func(args ...string) *exec.Cmd

	// Server starts this program for what is measured, perhaps another build of
	// it. Optional; default Program.
	Server func(args ...string) *exec.Cmd

	// Terminal is where the command of Kick shows its progress and says what is
	// wrong. Nil shows nothing, and what is wrong is in the error.
	Terminal *os.File

	// Progress is called at the beginning of each phase, with what it does and
	// for how many nodes. It returns what is called with the nodes done since
	// the last call, and what is called at the phase's end. Optional.
	Progress func(label string, nodes int) (add func(int), end func())
}

// Check reports everything wrong with c at once, each line naming its flag.
func (c *Config) Check() error {
	var errs []error
	between := func(flag string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("--%s is %d, want %d to %d", flag, n, least, most))
		}
	}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	between("nodes", c.Nodes, 1, MaxNodes)
	between("concurrency", c.Concurrency, 1, MaxConcurrency)
	between("drivers", c.Drivers, 1, MaxDrivers)
	between("facts-bytes", c.FactsBytes, minFacts, wire.MaxFactsBytes)
	between("uses", c.Uses, 0, MaxNodes)
	between("stored", c.Stored, 0, MaxNodes)
	between("idle", c.Idle, 0, MaxIdle)
	between("kick", c.Kick, 0, MaxIdle)
	between("provisioners", c.Provisioners, 0, MaxProvisioners)
	if c.Provisioners > 0 && c.Stored > 0 {
		bad("--stored with --provisioners: records are put into the store of a provisioner with its broker inside")
	}
	switch {
	case c.Rate < 0:
		bad("--rate is %g, want nodes a second", c.Rate)
	case c.Duration < 0:
		bad("--duration is %v, want 1s or more", c.Duration)
	}
	if c.Kick > 0 && (c.Stored > 0 || c.Idle > 0 || c.Rate > 0 || c.Duration > 0 || c.Uses > 0) {
		bad("--kick with --stored, --idle, --rate, --duration or --uses: it plays one fleet and nothing else")
	}
	if c.TokenFile != "" && c.URL == "" {
		bad("--token without --url: a provisioner of our own gets a token of our own")
	}
	if c.URL != "" {
		if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Port() == "" {
			bad("--url is %q, want nats://HOST:PORT", c.URL)
		}
		if c.TokenFile == "" {
			bad("--url without --token: which token is good there?")
		}
		for _, own := range []struct {
			flag string
			set  bool
		}{
			{"uses", c.Uses > 0}, {"sealed", c.Sealed}, {"policy", c.Policy != ""}, {"stored", c.Stored > 0}, {"idle", c.Idle > 0}, {"kick", c.Kick > 0}, {"provisioners", c.Provisioners > 0}, {"cpuprofile", c.Profile != ""},
		} {
			if own.set {
				bad("--%s with --url: it is for a provisioner that bench starts itself", own.flag)
			}
		}
	}
	if len(c.PIDs) > 0 && c.URL == "" {
		bad("--pid without --url: bench knows the provisioner that it starts")
	}
	for _, pid := range c.PIDs {
		if _, err := processCPU(pid); err != nil {
			bad("--pid %d: %v", pid, err)
		}
	}
	for _, file := range []struct{ flag, name string }{{"policy", c.Policy}, {"token", c.TokenFile}, {"dir", c.Dir}} {
		if file.name == "" {
			continue
		}
		if _, err := os.Stat(file.name); err != nil {
			bad("--%s: %w", file.flag, err)
		}
	}
	return errors.Join(errs...)
}
