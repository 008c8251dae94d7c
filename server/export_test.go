package server

import (
	"crypto/x509"
	"net"
	"time"

	"muster/internal/wire"
)

// What tests of package server_test may set and see.

// SetSteps has f called after each step on disk.
func (cfg *Config) SetSteps(f func(name string)) { cfg.steps = f }

// WithoutExchange has the switch take two renames, as on other systems.
func (cfg *Config) WithoutExchange() {
	cfg.exchange = func(string, string) error { return errNoExchange }
}

// SetSync has f called in place of what makes the names in a directory durable.
func (cfg *Config) SetSync(f func(dir string) error) { cfg.sync = f }

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error { return syncDir(dir) }

// SetPing sets how often a broker is asked whether it is there.
func (cfg *Config) SetPing(every time.Duration) { cfg.ping = every }

// SetLate has a refusal that comes after so long be nobody's word.
func (cfg *Config) SetLate(after time.Duration) { cfg.late = after }

// SetLookTimeout bounds a look at a file that token or configuration name.
func (cfg *Config) SetLookTimeout(d time.Duration) { cfg.lookFor = d }

// SetResolver sets what looks up the names of brokers.
func (cfg *Config) SetResolver(r *net.Resolver) { cfg.resolver = r }

// SetBuild sets what is compiled in.
func (cfg *Config) SetBuild(tokenFile, brokers, srvDomain string, byDefault, secure bool) {
	cfg.build = &compiledIn{tokenFile: tokenFile, brokers: splitList(brokers), srvDomain: srvDomain, byDefault: byDefault, secure: secure}
}

// SetMachineName sets what the machine is called.
func (cfg *Config) SetMachineName(name string) { cfg.NameMachineBy(func() string { return name }) }

// NameMachineBy has the machine be called what name says each time.
func (cfg *Config) NameMachineBy(name func() string) {
	cfg.identity = func() (wire.Identity, error) { return machineIdentity(name()) }
}

// RenewAt is when a certificate is renewed.
func RenewAt(leaf *x509.Certificate, part float64) time.Time { return renewAt(leaf, part) }
