package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"muster/provisioner/choria"
)

// The open loop starts nodes at openShare of the measured peak rate for openSpan, but at most maxOpen times the nodes
// of the other cases.
const (
	openShare = 0.8
	openSpan  = 30 * time.Second
	maxOpen   = 3
)

// maxChoria bounds the Choria servers of the standard case: each needs an RSA key, and the rate is much lower.
const maxChoria = 10_000

// Cases runs the standard cases, each with its own provisioner and store, and calls each with every result. It returns
// an error if a node fails.
func Cases(ctx context.Context, cfg Config, each func(name string, r *Result)) error {
	base := cfg
	base.Stored, base.Idle = 0, 0
	peak := 0.0
	for _, one := range []struct {
		name string
		set  func(*Config)
	}{
		{"shared connections", func(*Config) {}},
		{"open loop at 80 % of that rate", func(c *Config) {
			c.Waves, c.Rate = []Wave{WaveApplied}, openShare*peak/60
			c.Nodes = min(max(1, int(c.Rate*openSpan.Seconds())), maxOpen*cfg.Nodes)
		}},
		{fmt.Sprintf("%d records stored", cfg.Stored), func(c *Config) { c.Stored = cfg.Stored }},
		{fmt.Sprintf("%d nodes connected", cfg.Idle), func(c *Config) { c.Idle = cfg.Idle }},
		{"20 KB of facts", func(c *Config) { c.FactsBytes = 20 << 10 }},
		{"new TCP connections", func(c *Config) { c.Connection = Connection{} }},
		{"new TCP connections, sealed", func(c *Config) { c.Connection = Connection{Sealed: true} }},
		{"new TLS connections", func(c *Config) { c.Connection = Connection{TLS: true} }},
		{"new TCP connections, limited token", func(c *Config) { c.Connection, c.Token.Uses = Connection{}, c.Nodes }},
		{"the same, two provisioners at a broker", func(c *Config) { c.Connection, c.Provisioners = Connection{}, 2 }},
		{"Choria servers", func(c *Config) {
			c.Choria, c.Connection, c.Waves = choria.V1, Connection{}, []Wave{WaveApplied}
			c.Nodes = min(cfg.Nodes, maxChoria)
		}},
	} {
		c := base
		one.set(&c)
		r, err := Run(ctx, c)
		if err == nil && r.Missing() > 0 {
			err = fmt.Errorf("%d nodes failed, the first: %s", r.Missing(), r.Why[0])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		peak = cmp.Or(peak, r.ProvisionedPerMinute)
		each(one.name, r)
	}
	return nil
}
