package testbed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// TestASiteServesItsOwn has nodes come to the broker of their site, a leaf of the
// hub's: the site's provisioner answers them while it lives, the hub's when it
// does not, and the token of the site is good there and nowhere else.
func TestASiteServesItsOwn(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisionerAt("provisioner.ams1.fleet.test", "ams1")
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
	f.Eventually("the site's token is refused elsewhere", func() bool { return strings.HasPrefix(f.Cause(elsewhere.Identity), string(wire.CodeTokenSite)) })
	if r := f.Record(elsewhere.Identity); r != nil {
		t.Errorf("at the hub, the site's token made %+v", r)
	}
	f.Check()
}

// TestARevokedNodeIsDroppedAtItsSite has the hub revoke a node that is connected
// at a site: the site's provisioner drops it, and it stays out without one, too.
func TestARevokedNodeIsDroppedAtItsSite(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisionerAt("provisioner.ams1.fleet.test", "ams1")
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

// TestWhoeverWasRevokedWithoutTheSiteIsDropped has the hub revoke a node, and another
// node renew, while none of the site's provisioners runs: connections that the site's
// broker has kept meanwhile are dropped by the next one that starts there.
func TestWhoeverWasRevokedWithoutTheSiteIsDropped(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1"}})
	local := f.AddProvisionerAt("provisioner.ams1.fleet.test", "ams1")
	revoked, renewed, other := f.Node("web1.example.net"), f.Node("web2.example.net"), f.Node("web3.example.net")
	var conns []*nats.Conn
	var given []*wire.Enrolled
	for _, n := range []*simnode.Node{revoked, renewed, other} {
		e := f.Enroll(n)
		f.Apply(n, e)
		given, conns = append(given, e), append(conns, dialFleet(t, f.Site("ams1"), n, e))
	}
	local.Stop()
	f.Revoke(revoked.Identity)
	next, newer := f.Renew(renewed, given[1])
	if r := f.AppliedOverFleet(next, newer); r.Applied == nil {
		t.Fatalf("renewal not confirmed: %+v", r)
	}
	for i, nc := range conns {
		if err := nc.Flush(); err != nil {
			t.Fatalf("connection %d at a site without a provisioner: %v", i, err)
		}
	}
	f.AddProvisionerAt("provisioner.ams1.fleet.test", "ams1")
	f.Eventually("the revoked node's connection at the site is dropped", conns[0].IsClosed)
	f.Eventually("the superseded certificate's connection at the site is dropped", conns[1].IsClosed)
	if err := conns[2].Flush(); err != nil {
		t.Errorf("another node's connection: %v", err)
	}
	f.Check()
}

// TestASupersededCertificateIsDroppedAtOtherSites has connections of certificates at a site,
// at another one and at the hub, and renewals confirmed where they are not: each place's own
// provisioner drops them.
func TestASupersededCertificateIsDroppedAtOtherSites(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1, Sites: []string{"ams1", "fra1"}})
	hub, ams1, fra1 := f.Servers()[0], f.Site("ams1"), f.Site("fra1")
	f.AddProvisionerAt("provisioner.ams1.fleet.test", "ams1")
	f.AddProvisionerAt("provisioner.fra1.fleet.test", "fra1")
	type place struct{ stays, renews *testbed.Server }
	former := make(map[place]*nats.Conn)
	for i, at := range []place{{ams1, hub}, {fra1, ams1}, {hub, fra1}} {
		n := f.Node(fmt.Sprintf("web%d.example.net", i+1))
		given := f.Enroll(n)
		f.Apply(n, given)
		former[at] = dialFleet(t, at.stays, n, given)
		next := f.Successor(n)
		request, err := n.Renewal(next)
		if err != nil {
			t.Fatal(err)
		}
		r, err := simnode.Renew(f.Context(), dialFleet(t, at.renews, n, given), request)
		if err != nil || r.Enrolled == nil {
			t.Fatalf("renewal at %s: %+v, %v", at.renews.Name, r, err)
		}
		applied, err := next.Confirm(r.Enrolled)
		if err != nil {
			t.Fatal(err)
		}
		live := dialFleet(t, at.stays, next, r.Enrolled)
		if r, err := simnode.Apply(f.Context(), dialFleet(t, at.renews, next, r.Enrolled), applied); err != nil || r.Applied == nil {
			t.Fatalf("confirmation at %s: %+v, %v", at.renews.Name, r, err)
		}
		defer func() {
			if err := live.Flush(); err != nil {
				t.Errorf("the connection of the new certificate at %s: %v", at.stays.Name, err)
			}
		}()
	}
	for at, nc := range former {
		f.Eventually(fmt.Sprintf("the connection at %s of what was superseded at %s is dropped", at.stays.Name, at.renews.Name), nc.IsClosed)
	}
	f.Check()
}

// TestOnlyBrokersOfSitesAreLeaves has a site's broker come with the certificate of
// a node, which is of the same authority, and then with its own again.
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
	f.Eventually("the hub refuses the leaf", func() bool { return strings.Contains(site.Log(), "Authorization Violation") })
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
