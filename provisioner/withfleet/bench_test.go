package provisioner_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/provisioner"
)

// BenchmarkEnroll compares what the claim of a limited token costs beside the
// record alone: 64 requests at a time, every acknowledged write on disk. One
// token for all is where requests gather in one append; a token each is where
// nothing can be gathered.
func BenchmarkEnroll(b *testing.B) {
	for name, uses := range map[string]func(n int) int{
		"record only": func(int) int { return 0 }, "one token for all": func(n int) int { return n }, "a token each": nil,
	} {
		b.Run(name, func(b *testing.B) {
			f := testbed.New(b, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
			shared := ""
			if uses != nil {
				shared = f.Token(testbed.Limited(uses(b.N)))
			}
			nodes := make([]*simnode.Node, b.N)
			for i := range nodes {
				token := shared
				if token == "" {
					token = f.Token(testbed.Limited(1))
				}
				nodes[i] = node(b, fmt.Sprintf("node%d.example.net", i), token)
			}
			p := provisioners(b, f, 1)[0]
			ctx := b.Context()
			var next atomic.Int64
			var askers sync.WaitGroup
			b.ResetTimer()
			for range 64 {
				askers.Go(func() {
					for i := next.Add(1) - 1; i < int64(len(nodes)); i = next.Add(1) - 1 {
						if _, err := p.Enroll(ctx, nodes[i].Request(), provisioner.Source{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			askers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "nodes/min")
		})
	}
}

// BenchmarkApplied compares a confirmation that follows its enrollment with one
// for which the record has to be read, as it is in another process.
func BenchmarkApplied(b *testing.B) {
	for name, one := range map[string]bool{"the process that enrolled": true, "another process": false} {
		b.Run(name, func(b *testing.B) {
			f := testbed.New(b, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
			token := f.Token(nil)
			two := provisioners(b, f, 2)
			confirming := two[0]
			if !one {
				confirming = two[1]
			}
			b.ReportAllocs()
			for i := range b.N {
				b.StopTimer()
				n := node(b, fmt.Sprintf("node%d.example.net", i), token)
				e, err := two[0].Enroll(b.Context(), n.Request(), provisioner.Source{})
				if err != nil {
					b.Fatal(err)
				}
				a, err := n.Confirm(e)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := confirming.Applied(b.Context(), a, provisioner.Source{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
