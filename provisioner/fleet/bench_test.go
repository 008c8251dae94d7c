package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// BenchmarkIndex fills an index and asks for pages of it: the first, one in the
// middle, one of few that match, one that is sorted. fill-µs is for one record,
// bytes/node what the index takes of the heap.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			before := heap()
			x, f := index(b)
			began := time.Now()
			for i := range n {
				r := record(fmt.Sprintf("web%07d.ams1.example.net", i), func(r *provisioner.Record) {
					r.Site, r.UpdatedAt = jwt.Site(fmt.Sprintf("site%d", i%50)), noon.Add(time.Duration(i*7919%n)*time.Second)
					r.Current.NotAfter = noon.Add(time.Duration(i*104729%n) * time.Second)
					if i%1000 == 0 {
						r.State = provisioner.StateRevoked
					}
				})
				raw, err := r.Encode()
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

// heap returns what is alive on the heap.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
