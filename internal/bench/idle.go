package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// stay connects every node that got through to the fleet, over mutual TLS with
// what it was given, and listens for its commands as agents do, until in ends.
func (d *driver) stay(ctx context.Context, reports *json.Encoder) error {
	var next, connected atomic.Int64
	stop := every(ctx, func() { _ = reports.Encode(Report{Connected: int(connected.Load())}) })
	var g errgroup.Group
	conns := make([]*conn, len(d.nodes))
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for range 2 * runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < len(d.nodes) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				n := d.nodes[i]
				if n.certificate == "" {
					continue
				}
				c, err := d.join(n)
				if err != nil {
					return fmt.Errorf("%s: connect to the fleet: %w", n.identity, err)
				}
				conns[i] = c
				connected.Add(1)
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	stop()
	if err != nil {
		return err
	}
	for _, c := range conns {
		if c != nil {
			go c.listen()
		}
	}
	if err := reports.Encode(Report{Connected: int(connected.Load()), Settled: true}); err != nil {
		return err
	}
	<-ctx.Done() // in has ended
	return nil
}

// join connects one node to the fleet.
func (d *driver) join(n *node) (*conn, error) {
	certificate := tls.Certificate{PrivateKey: n.key}
	for rest := []byte(n.certificate); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	secure := brokerTLS(d.host, d.pin)
	secure.MinVersion, secure.Certificates = tls.VersionTLS13, []tls.Certificate{certificate}
	c, err := dial(d.address, &credentials{name: wire.NewID()}, secure)
	if err != nil {
		return nil, err
	}
	subject := wire.CommandSubject(wire.Identity(n.identity))
	if _, err := c.Write([]byte("SUB " + subject + " 1\r\n")); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// listen answers the broker's pings until the connection ends.
func (n *conn) listen() {
	for {
		if _, err := n.message(); err != nil {
			return
		}
	}
}

// idle is a fleet that is connected while something else is measured.
type idle struct {
	processes
	memory int64 // of the serving processes then
	writes int   // that it took to provision it
}

// idle provisions nodes and has them connect.
func (s *serving) idle(ctx context.Context, cfg *Config) (*idle, error) {
	token, err := s.token(&Config{})
	if err != nil {
		return nil, err
	}
	fleet := played{"provisioning the fleet", Order{
		Nodes: cfg.Idle, Concurrency: cfg.Concurrency, Shared: true, Applied: true, FactsBytes: cfg.FactsBytes, Stay: true,
	}}
	w, drivers, err := s.play(ctx, cfg, fleet, token)
	if err != nil {
		drivers.end()
		return nil, err
	}
	i := &idle{processes: drivers}
	for _, o := range w.outcomes {
		i.writes += o.Enrolled + o.Provisioned
		if o.Provisioned < o.Nodes {
			i.end()
			return nil, fmt.Errorf("provision the fleet: %d of %d nodes, %v", o.Provisioned, o.Nodes, o.Why)
		}
	}
	i.memory, err = s.atRest(ctx)
	return i, err
}

// settling is how long the memory of processes must not have fallen to count as
// what they take at rest: a provisioner notices within 10 s that it rests
// (package daemon), and the system gets its memory back little by little.
const settling = 20 * time.Second

// atRest returns what the serving processes take when nothing more of it is
// given back, after a minute at most.
func (s *serving) atRest(ctx context.Context) (int64, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	least, since, start := int64(math.MaxInt64), time.Now(), time.Now()
	for {
		u, err := usageOf(s.pids)
		if err != nil {
			return 0, err
		}
		if u.memory < least {
			least, since = u.memory, time.Now()
		}
		if time.Since(since) >= settling || time.Since(start) >= time.Minute {
			return u.memory, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
