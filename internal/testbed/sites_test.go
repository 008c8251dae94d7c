package testbed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// atSite puts a provisioner at a site: it connects only to that site's server.
func atSite(f *testbed.Fleet, site string) func(*testbed.Provisioner, *daemon.Config) {
	return func(_ *testbed.Provisioner, c *daemon.Config) {
		c.Site, c.Broker.URL = site, strings.Replace(f.Site(site).URL(), "nats:", "tls:", 1)
	}
}

// Nodes connect to their site's broker, a leaf of the hub: the site's provisioner answers while it lives, otherwise
// the hub's. The site's token is valid there alone.
func TestASiteServesItsNodes(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisioner("provisioner.ams1.fleet.test", atSite(f, "ams1"))
	at := func(url string) string {
		return f.Token(func(c *jwt.Claims) {
			c.Brokers = url
			if err := c.SetLimits(jwt.Limits{Site: "ams1"}); err != nil {
				t.Fatal(err)
			}
			f.Seal(c)
		})
	}
	site := f.Site("ams1").URL()
	first := []*testbed.Agent{f.Agent("web1.example.net", at(site)), f.Agent("web2.example.net", at(site))}
	f.WaitProvisioned(first...)
	for _, a := range first {
		if got := f.EnrolledBy(a.Identity); got != "provisioner.ams1.fleet.test" {
			t.Errorf("%s was enrolled by %q, want the site's own provisioner", a.Identity, got)
		}
	}
	hub := f.Agent("hub.example.net", f.Token(nil))
	f.WaitProvisioned(hub)
	if got := f.EnrolledBy(hub.Identity); got != "" {
		t.Errorf("%s was enrolled by %q, want the hub's own provisioner", hub.Identity, got)
	}
	local.Stop()
	late := f.Agent("web3.example.net", at(site))
	f.WaitProvisioned(late)
	if got := f.EnrolledBy(late.Identity); got != "" {
		t.Errorf("%s was enrolled by %q, want the hub's provisioner", late.Identity, got)
	}
	elsewhere := f.Agent("web4.example.net", at(f.URL()))
	f.Eventually("the site's token is refused elsewhere", func() bool {
		return strings.HasPrefix(f.Cause(elsewhere.Identity), string(wire.CodeTokenSite))
	})
	if r := f.Record(elsewhere.Identity); r != nil {
		t.Errorf("at the hub, the site's token made %+v", r)
	}
	f.Check()
}

// The hub revokes a node at a site: the site's provisioner drops it, and it stays out without that provisioner too.
func TestARevokedNodeIsDroppedAtItsSite(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisioner("provisioner.ams1.fleet.test", atSite(f, "ams1"))
	n := f.Node("web1.example.net")
	given := f.Enroll(n)
	f.Apply(n, given)
	nc := dialFleet(t, f.Site("ams1"), n, given)
	f.Revoke(n.Identity)
	f.Eventually("the connection at the site is dropped", nc.IsClosed)
	local.Stop()
	if nc, err := n.DialFleet(f.Site("ams1").URL(), given); err == nil {
		nc.Close()
		t.Error("the revoked node connects again")
	}
	f.Check()
}

// A site's broker uses a node's certificate, of the same authority, and then its own again.
func TestOnlyBrokersOfSitesAreLeaves(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	node := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(node)
	site := f.Site("ams1")
	site.Kill()
	own := map[string][]byte{}
	for name, stolen := range map[string]string{"certificate.pem": "certificate.pem", "key.pem": "private.pem"} {
		path := filepath.Join(site.Dir, name)
		own[path] = read(t, path)
		write(t, path, read(t, filepath.Join(node.Dir, stolen)))
	}
	site.Start()
	f.Eventually("the hub refuses the leaf", func() bool {
		return strings.Contains(site.Log(), "Authorization Violation")
	})
	for path, text := range own {
		write(t, path, text)
	}
	site.Kill()
	site.Start()
	f.WaitProvisioned(f.Agent("web2.example.net", f.Token(func(c *jwt.Claims) { c.Brokers = site.URL() })))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
