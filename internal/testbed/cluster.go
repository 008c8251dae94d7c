package testbed

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/testproc"
	"muster/provisioner/broker"
)

type cluster struct {
	t       testing.TB
	dir     string
	servers []*Server
	sites   map[string]*Server
	fleet   *Fleet
}

// A Server is a nats-server process with its own address, 127.x.y.z, so that tests can identify traffic to each server.
type Server struct {
	Name    string
	Address string
	Port    string
	Routes  string
	Leaves  string
	Dir     string
	site    string // "": it has the streams

	t    testing.TB
	cmd  *exec.Cmd // nil unless it runs
	done chan struct{}
}

// newCluster chooses the addresses of n servers and one per site. It starts none.
func newCluster(f *Fleet, n int, sites []string) *cluster {
	t := f.t
	t.Helper()
	c := &cluster{t: t, fleet: f, dir: filepath.Join(t.TempDir(), "servers"), sites: make(map[string]*Server)}
	// Each cluster has its own network, so that no other process takes a port between two starts.
	a, b := 1+rand.IntN(250), 1+rand.IntN(250) //nolint:gosec // nothing is hidden
	for i := range n {
		s := &Server{Name: fmt.Sprintf("n%d", i+1), Address: fmt.Sprintf("127.%d.%d.%d", a, b, i+1), t: t}
		s.Dir = filepath.Join(c.dir, s.Name)
		s.Port, s.Routes, s.Leaves = testproc.FreePort(t), testproc.FreePort(t), testproc.FreePort(t)
		c.servers = append(c.servers, s)
	}
	for i, site := range sites {
		s := &Server{Name: "broker-" + site, Address: fmt.Sprintf("127.%d.%d.%d", a, b, n+i+1), site: site, t: t}
		s.Dir, s.Port = filepath.Join(c.dir, s.Name), testproc.FreePort(t)
		c.sites[site] = s
	}
	return c
}

func (c *cluster) all() []*Server {
	return append(slices.Clone(c.servers), slices.Collect(maps.Values(c.sites))...)
}

func (c *cluster) addresses() []string {
	var list []string
	for _, s := range c.all() {
		list = append(list, s.Address)
	}
	return list
}

func (c *cluster) urls(scheme string) string {
	var list []string
	for _, s := range c.servers {
		list = append(list, scheme+"://"+s.listen())
	}
	return strings.Join(list, ",")
}

// start configures the servers for this provisioner.yaml, as an operator would, and starts them. They end with the
// test.
func (c *cluster) start(config string) {
	c.t.Helper()
	var routes, hub, leaves []string
	for _, s := range c.servers {
		routes = append(routes, net.JoinHostPort(s.Address, s.Routes))
		hub = append(hub, net.JoinHostPort(s.Address, s.Leaves))
	}
	for _, s := range c.sites {
		leaves = append(leaves, s.Name)
	}
	for _, s := range c.all() {
		server := setup.BrokerServer{Dir: s.Dir}
		server.Name, server.Listen = s.Name, s.listen()
		if s.site != "" {
			server.Hub = &broker.HubConfig{URLs: hub, Site: s.site}
		} else {
			server.StoreDir, server.MaxStoreBytes = filepath.Join(s.Dir, "store"), 8<<30
			if len(routes) > 1 {
				listen := net.JoinHostPort(s.Address, s.Routes)
				server.Cluster = &broker.ClusterConfig{Name: "test", Listen: listen, Routes: routes}
			}
			if len(leaves) > 0 {
				server.Leaves = &broker.LeavesConfig{Listen: net.JoinHostPort(s.Address, s.Leaves), Names: leaves}
			}
		}
		if err := server.Write(config, s.Dir); err != nil {
			c.t.Fatalf("configure %s: %v", s.Name, err)
		}
	}
	c.t.Cleanup(func() {
		for _, s := range c.all() {
			s.Kill()
			if c.t.Failed() {
				c.t.Logf("%s: %s", s.Name, s.Log())
			}
		}
	})
	for _, s := range c.all() {
		s.Start()
	}
}

func (s *Server) listen() string { return net.JoinHostPort(s.Address, s.Port) }

// URL returns the URL of this server alone.
func (s *Server) URL() string { return "nats://" + s.listen() }

// Start returns when the server listens.
func (s *Server) Start() {
	s.t.Helper()
	binary := testproc.NATSServer(s.t)
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(s.t, err)
	defer func() { _ = log.Close() }()
	cmd := exec.Command(binary, "-c", filepath.Join(s.Dir, "nats-server.conf"))
	cmd.Stdout, cmd.Stderr = log, log
	must(s.t, testproc.Start(cmd))
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	s.cmd, s.done = cmd, done
	if !within(patience, 20*time.Millisecond, func() bool {
		select {
		case <-done:
			s.t.Fatalf("%s ended: %s", s.Name, s.Log())
		default:
		}
		conn, err := net.DialTimeout("tcp", s.listen(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		s.t.Fatalf("%s does not listen: %s", s.Name, s.Log())
	}
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	b, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Kill sends SIGKILL and waits for the end.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// Servers returns the cluster's servers, in the order of [Fleet.URL].
func (c *cluster) Servers() []*Server { return c.servers }

// A Provisioner is a further provisioner, as on another machine: with its own name and data directory, and the same
// keys.
type Provisioner struct {
	Daemon *daemon.Daemon
	Clock  *Clock // its own clock, relative to the fleet's

	f    *Fleet
	stop context.CancelFunc
	done chan error
}

// Site returns the server of a site.
func (c *cluster) Site(site string) *Server { return c.sites[site] }

// AddProvisioner starts a provisioner and returns when it serves. It stops when the test ends, or by Stop. edit changes
// it before it starts.
func (c *cluster) AddProvisioner(name string, edits ...func(*Provisioner, *daemon.Config)) *Provisioner {
	c.t.Helper()
	f := c.fleet
	p := &Provisioner{Clock: &Clock{base: f.Clock}, f: f}
	edit := func(c *daemon.Config) {
		if f.opts.Edit != nil {
			f.opts.Edit(c)
		}
		c.Name, c.DataDir, c.Revocations.Journal = name, filepath.Join(f.Dir, "data-"+name), ""
		for _, edit := range edits {
			edit(p, c)
		}
		must(f.t, os.MkdirAll(c.DataDir, 0o700)) // as init does for the first provisioner
	}
	p.Daemon, p.stop, p.done = run(f, "provisioner "+name, func() (*daemon.Daemon, error) {
		opts := f.options(p.Clock, f.log.logger().With("provisioner", name))
		return daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), opts, edit)
	})
	c.t.Cleanup(p.Stop)
	return p
}

// Stop stops the provisioner as SIGTERM does, and waits for its end.
func (p *Provisioner) Stop() {
	p.f.t.Helper()
	if p.stop == nil {
		return
	}
	p.stop()
	p.stop = nil
	stopped(p.f.t, "provisioner", p.done)
}
