package server

import (
	"crypto/x509"
	"time"
)

// SetSteps sets a function to be called after each step on disk.
func (cfg *Config) SetSteps(f func(name string)) { cfg.hooks.steps = f }

// SetSync replaces the sync of a directory.
func (cfg *Config) SetSync(f func(dir string) error) { cfg.hooks.sync = f }

// SetPing sets the interval of pings to the broker.
func (cfg *Config) SetPing(every time.Duration) { cfg.hooks.ping = every }

// SetLate sets when a refusal no longer counts as the provisioners'.
func (cfg *Config) SetLate(after time.Duration) { cfg.hooks.late = after }

// SetRandom sets the random numbers that spread waits.
func (cfg *Config) SetRandom(f func() float64) { cfg.hooks.random = f }

// SetRegistration sets the interval of registration data.
func (cfg *Config) SetRegistration(every time.Duration) { cfg.hooks.registration = every }

// SetMachineName sets the host name.
func (cfg *Config) SetMachineName(name string) { cfg.NameMachineBy(func() string { return name }) }

// NameMachineBy sets a function that returns the host name.
func (cfg *Config) NameMachineBy(name func() string) {
	cfg.hooks.machine = func() (string, error) { return name(), nil }
}

// RenewAt exports renewAt.
func RenewAt(leaf *x509.Certificate, part float64) time.Time { return renewAt(leaf, part) }
