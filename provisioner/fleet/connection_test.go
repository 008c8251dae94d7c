package fleet_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

var (
	n1 = fleet.Broker{ID: "N1", Name: "n1"}
	n2 = fleet.Broker{ID: "N2", Name: "n2"}
)

func open(id wire.Identity, number uint64, since time.Time) fleet.Connection {
	return fleet.Connection{Node: id, Number: number, Since: since}
}

func ended(c fleet.Connection, at time.Time) fleet.Connection {
	c.Ended = at
	return c
}

func listed(b fleet.Broker, all ...fleet.Connection) fleet.Open {
	o := make(fleet.Open)
	for _, c := range all {
		o.Set(b, c)
	}
	return o
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	const web = "web1.example.net"
	first := open(web, 7, noon)
	for name, c := range map[string]struct {
		told func(*fleet.Index)
		want fleet.Liveness
	}{
		"no broker was listed": {func(x *fleet.Index) { x.Changed(n1, first) }, fleet.Liveness{Connected: fleet.Unknown}},
		"connected": {
			func(x *fleet.Index) { x.Listed(listed(n1, first), noon); x.Settled(noon, false) },
			fleet.Liveness{Connected: fleet.Yes, Since: noon, Broker: "n1"},
		},
		"ended": {func(x *fleet.Index) {
			x.Settled(noon, false)
			x.Changed(n1, first)
			x.Changed(n1, ended(first, noon.Add(time.Minute)))
		}, fleet.Liveness{Connected: fleet.No, Since: noon.Add(time.Minute), Broker: "n1"}},
		"moved, and the end of the former connection comes late": {func(x *fleet.Index) {
			x.Settled(noon, false)
			x.Changed(n1, first)
			x.Changed(n2, open(web, 7, noon.Add(time.Second)))
			x.Changed(n1, ended(first, noon.Add(time.Minute)))
		}, fleet.Liveness{Connected: fleet.Yes, Since: noon.Add(time.Second), Broker: "n2"}},
		"the end was missed": {func(x *fleet.Index) {
			x.Changed(n1, first)
			x.Listed(listed(n2, open("web2.example.net", 7, noon)), noon.Add(time.Hour))
			x.Settled(noon.Add(time.Hour), false)
		}, fleet.Liveness{Connected: fleet.No, Since: noon.Add(time.Hour), Broker: "n1"}},
		"listed at another broker, whose clock is behind": {func(x *fleet.Index) {
			x.Changed(n1, first)
			x.Listed(listed(n2, open(web, 7, noon.Add(-time.Hour))), noon.Add(time.Hour))
			x.Settled(noon.Add(time.Hour), false)
		}, fleet.Liveness{Connected: fleet.Yes, Since: noon.Add(-time.Hour), Broker: "n2"}},
		"not yet back after a restart": {
			func(x *fleet.Index) { x.Settled(noon.Add(2*time.Hour), false) },
			fleet.Liveness{Connected: fleet.Unknown},
		},
		"never connected to any broker": {func(x *fleet.Index) {
			x.Settled(noon.Add(time.Minute), false)
			x.Settled(noon.Add(2*time.Minute), false)
		}, fleet.Liveness{Connected: fleet.No, Since: noon}},
		"new, and never connected": {
			func(x *fleet.Index) { x.Settled(noon.Add(-time.Minute), false) },
			fleet.Liveness{Connected: fleet.No, Since: noon},
		},
		"perhaps at another broker": {func(x *fleet.Index) {
			x.Settled(noon.Add(time.Minute), true)
			x.Settled(noon.Add(2*time.Minute), true)
		}, fleet.Liveness{Connected: fleet.Unknown}},
		"silent, at no known broker": {func(x *fleet.Index) {
			x.Settled(noon.Add(time.Hour), true)
			x.Settled(noon.Add(2*time.Hour), true)
		}, fleet.Liveness{Connected: fleet.No, Since: noon}},
		"the brokers do not answer": {func(x *fleet.Index) {
			x.Changed(n1, first)
			x.Settled(noon, false)
			x.Settled(time.Time{}, false)
		}, fleet.Liveness{Connected: fleet.Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, f := index(t)
			f.put(t, record(web, func(*provisioner.Record) {}))
			c.told(x)
			n, _ := x.Find(web)
			if n.Connection == nil || *n.Connection != c.want {
				t.Errorf("got %+v, want %+v", n.Connection, c.want)
			}
			at := c.want.Since.Add(time.Second)
			for _, is := range []fleet.ConnectionState{fleet.Yes, fleet.No, fleet.Unknown} {
				p, err := x.List(t.Context(), fleet.Query{Filter: fleet.Filter{Connected: is}})
				if err != nil || (len(p.Nodes) == 1) != (is == c.want.Connected) {
					t.Errorf("connected %s: listed %d, %v", is, len(p.Nodes), err)
				}
				p, err = x.List(t.Context(), fleet.Query{Filter: fleet.Filter{Connected: is, LinkBefore: at}})
				if err != nil || (len(p.Nodes) == 1) != (is == c.want.Connected && is != fleet.Unknown) {
					t.Errorf("connected %s before %v: listed %d, %v", is, at, len(p.Nodes), err)
				}
			}
		})
	}
}

// Nodes of a site whose broker is down connect to the hub, and go back: the hub's provisioner sees only their renewals
// and reports then.
func TestNodesThatWentBackToTheirSiteMayBeConnected(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	names := []string{"a.example.net", "b.example.net", "c.example.net"}
	for i, name := range names {
		f.put(t, record(name, nil))
		c := open(wire.Identity(name), uint64(i), noon)
		x.Changed(n1, c)
		x.Changed(n1, ended(c, at(1)))
	}
	state := func(minutes int) fleet.ConnectionState {
		x.Settled(at(minutes), true)
		n, _ := x.Find("a.example.net")
		return n.Connection.Connected
	}
	if got := state(3); got != fleet.No || x.Quiet() == nil {
		t.Errorf("before they were heard again: %s, %v", got, x.Quiet())
	}
	for _, name := range names {
		f.put(t, record(name, func(r *provisioner.Record) { r.UpdatedAt = at(31) }))
	}
	if got := state(32); got != fleet.Unknown || x.Quiet() != nil {
		t.Errorf("heard again: %s, %v", got, x.Quiet())
	}
	if got := state(120); got != fleet.No {
		t.Errorf("silent: %s", got)
	}
}

// TestQuietSites: most connections of ams1 end, and few of lon2.
func TestQuietSites(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	var all []fleet.Connection
	number := uint64(0)
	for _, site := range []string{"ams1", "lon2"} {
		for _, host := range []string{"a", "b", "c", "d"} {
			id := host + "." + site + ".example.net"
			f.put(t, record(id, func(r *provisioner.Record) { r.Site = jwt.Site(site) }))
			number++
			all = append(all, open(wire.Identity(id), number, noon))
		}
	}
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	x.Listed(listed(n1, all...), noon)
	x.Settled(noon, false)
	for _, c := range append(all[:3:3], all[7]) {
		x.Changed(n1, ended(c, at(1)))
	}
	x.Settled(at(1), false)
	if err := x.Quiet(); err != nil {
		t.Errorf("at once: %v", err)
	}
	x.Settled(at(3), false)
	if err := x.Quiet(); err == nil || !strings.Contains(err.Error(), "site ams1: 3 ") || strings.Contains(err.Error(), "lon2") {
		t.Errorf("after two minutes: %v", err)
	}
	x.Changed(n1, open(all[0].Node, 100, at(4)))
	x.Settled(at(4), false)
	if err := x.Quiet(); err != nil {
		t.Errorf("one is back: %v", err)
	}
}
