package natsapi_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
)

// BenchmarkEnroll enrolls and provisions nodes over 64 shared connections: real
// sockets, every acknowledged write on disk, driver and provisioner in one
// process. It reports nodes a minute.
func BenchmarkEnroll(b *testing.B) {
	for _, applied := range []bool{false, true} {
		b.Run(fmt.Sprintf("applied=%v", applied), func(b *testing.B) {
			f := testbed.New(b, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
			token := f.Token(nil)
			nodes := make([]*simnode.Node, b.N)
			for i := range nodes {
				n, err := simnode.New(fmt.Sprintf("node%d.example.net", i), token)
				if err != nil {
					b.Fatal(err)
				}
				nodes[i] = n
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var next atomic.Int64
			var drivers sync.WaitGroup
			b.ResetTimer()
			for range 64 {
				nc := f.Dial(token)
				drivers.Go(func() {
					for i := next.Add(1) - 1; i < int64(len(nodes)); i = next.Add(1) - 1 {
						r, err := simnode.Enroll(ctx, nc, nodes[i].Request())
						if err != nil || r.Enrolled == nil {
							b.Errorf("enroll: %+v, %v", r, err)
							return
						}
						if !applied {
							continue
						}
						a, err := nodes[i].Confirm(r.Enrolled)
						if err != nil {
							b.Error(err)
							return
						}
						if r, err := simnode.Apply(ctx, nc, a); err != nil || r.Applied == nil {
							b.Errorf("applied: %+v, %v", r, err)
							return
						}
					}
				})
			}
			drivers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "nodes/min")
		})
	}
}
