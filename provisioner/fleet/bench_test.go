package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// BenchmarkIndex fills an index and asks for pages of it: the first, one in the
// middle, one of few that match, one that is sorted, one of those with a fact. fill-µs is for one record,
// bytes/node what the index takes of the heap.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			before := heap()
			x, f := index(b, benchFacts...)
			began := time.Now()
			for i := range n {
				r := record(fmt.Sprintf("web%07d.ams1.example.net", i), func(r *provisioner.Record) {
					r.Site, r.UpdatedAt = jwt.Site(fmt.Sprintf("site%d", i%50)), noon.Add(time.Duration(i*7919%n)*time.Second)
					r.Current.NotAfter = noon.Add(time.Duration(i*104729%n) * time.Second)
					r.Facts = factsOf(i)
					if i%1000 == 0 {
						r.State = provisioner.StateRevoked
					}
				})
				raw, err := wire.EncodeJSON(r)
				if err != nil {
					b.Fatal(err)
				}
				f.records <- raw
			}
			f.put(b)
			fill, size := time.Since(began), heap()-before
			middle := fleet.Query{}
			for range 500 {
				p, err := x.List(context.Background(), middle)
				if err != nil {
					b.Fatal(err)
				}
				if middle.Cursor = p.Next; n > 100_000 && middle.Cursor != "" {
					break // one page on: each is a look at all of them
				}
			}
			b.Run("summary", func(b *testing.B) {
				for b.Loop() {
					if _, err := x.Summary(noon); err != nil {
						b.Fatal(err)
					}
				}
			})
			for name, q := range map[string]fleet.Query{
				"first": {}, "middle": middle,
				"expires": {Sort: fleet.ByExpiry, Limit: fleet.MaxLimit}, "changed": {Sort: fleet.ByChanged},
				"revoked": {Filter: fleet.Filter{States: []provisioner.State{provisioner.StateRevoked}}},
				"fact":    {Filter: fleet.Filter{Facts: []string{"role=db*", "os.name=Debian"}}},
				"match":   {Filter: fleet.Filter{Match: "web*7.ams1.example.net"}, Sort: fleet.ByChanged},
			} {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						if _, err := x.List(context.Background(), q); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(fill.Seconds()*1e6/float64(n), "fill-µs/node")
					b.ReportMetric(float64(size)/float64(n), "bytes/node")
				})
			}
		})
	}
}

// benchFacts are the facts that BenchmarkIndex keeps.
var benchFacts = provisioner.DefaultKeptFacts()

// factsOf returns facts of a node: of 20 roles, each with its system, in 200 racks of
// 4 data centers, so that there are 4,000 sets of them.
func factsOf(i int) provisioner.Facts {
	role := i / 200 % 20
	return provisioner.Facts{
		{Name: "datacenter", Value: fmt.Sprintf("dc%d", i%200/50)}, {Name: "environment", Value: "production"},
		{Name: "os.name", Value: []string{"Debian", "Ubuntu", "Rocky", "SLES"}[role%4]}, {Name: "os.release.full", Value: "13.1"},
		{Name: "rack", Value: fmt.Sprintf("r%03d", i%200)}, {Name: "role", Value: []string{"db", "web", "cache", "queue"}[role%4] + fmt.Sprint(role/4)},
	}
}

// BenchmarkIndexFacts is what facts cost: none, those of [provisioner.DefaultKeptFacts], and one more
// that is another with each node, as a serial number.
func BenchmarkIndexFacts(b *testing.B) {
	const n = 100_000
	for _, kind := range []string{"none", "shared", "own"} {
		b.Run(kind, func(b *testing.B) {
			var names []string
			if kind != "none" {
				names = append(names, benchFacts...)
			}
			if kind == "own" {
				names = append(names, "serialnumber")
			}
			before := heap()
			x, f := index(b, names...)
			took := time.Duration(0)
			for i := range n {
				r := record(fmt.Sprintf("web%07d.ams1.example.net", i), func(r *provisioner.Record) {
					if kind != "none" {
						r.Facts = factsOf(i)
					}
					if kind == "own" {
						r.Facts = append(r.Facts, provisioner.Fact{Name: "serialnumber", Value: fmt.Sprintf("7XK2Q%07d", i)})
					}
				})
				raw, err := wire.EncodeJSON(r)
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				f.records <- raw
				took += time.Since(began)
			}
			f.put(b)
			size := heap() - before
			q := fleet.Query{}
			switch kind {
			case "shared":
				q.Facts = []string{"role=db*", "rack=r017"}
			case "own":
				q.Facts = []string{"serialnumber=7XK2Q00*77"}
			}
			for b.Loop() {
				if _, err := x.List(context.Background(), q); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size)/n, "bytes/node")
			b.ReportMetric(took.Seconds()*1e6/n, "fill-µs/node")
		})
	}
}

// heap returns what is alive on the heap.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
