package server

import (
	"crypto/x509"
	"net"
	"time"
)

// What tests of package server_test may set and see.

// SetSteps has f called after each step on disk.
func (cfg *Config) SetSteps(f func(name string)) { cfg.hooks.steps = f }

// SetSync has f called in place of what makes the names in a directory durable.
func (cfg *Config) SetSync(f func(dir string) error) { cfg.hooks.sync = f }

// SetPing sets how often a broker is asked whether it is there.
func (cfg *Config) SetPing(every time.Duration) { cfg.hooks.ping = every }

// SetLate has a refusal that comes after so long not be the provisioners' word.
func (cfg *Config) SetLate(after time.Duration) { cfg.hooks.late = after }

// SetRandom sets by what waits are spread.
func (cfg *Config) SetRandom(f func() float64) { cfg.hooks.random = f }

// SetRegistration sets the interval of registration data.
func (cfg *Config) SetRegistration(every time.Duration) { cfg.hooks.registration = every }

// SetResolver sets what looks up the names of brokers.
func (cfg *Config) SetResolver(r *net.Resolver) { cfg.hooks.resolver = r }

// SetMachineName sets what the machine is called.
func (cfg *Config) SetMachineName(name string) { cfg.NameMachineBy(func() string { return name }) }

// NameMachineBy has the machine be called what name says each time.
func (cfg *Config) NameMachineBy(name func() string) {
	cfg.hooks.machine = func() (string, error) { return name(), nil }
}

// RenewAt is when a certificate is renewed.
func RenewAt(leaf *x509.Certificate, part float64) time.Time { return renewAt(leaf, part) }
