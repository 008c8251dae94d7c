package natsapi_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/natsapi"
)

// TestNodesToldBusyEnrollInTheEnd sends 300 requests at once to a service with room for ten, right after its start.
// The nodes return when they are told to, and all are provisioned. A node that only has to confirm is not queued
// behind nodes that have not enrolled.
func TestNodesToldBusyEnrollInTheEnd(t *testing.T) {
	t.Parallel()
	const nodes, soon = 300, int64(time.Second / time.Millisecond)
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
	conn := service(t, f, "test.", nil, func(c *natsapi.Config) { c.Workers, c.Queue = 2, 8 })
	var busy atomic.Int64
	var all sync.WaitGroup
	for i := range nodes {
		n := f.Node(fmt.Sprintf("web%d.example.net", i))
		all.Go(func() {
			r, _, err := persist(f, conn, "test."+wire.SubjectEnroll, n, n.Request(), &busy)
			if err != nil || r.Enrolled == nil {
				t.Errorf("%s: %s, %v", n.Identity, f.Cause(n.Identity), err)
				return
			}
			a, err := n.Confirm(r.Enrolled)
			if err != nil {
				t.Error(err)
				return
			}
			r, longest, err := persist(f, conn, "test."+wire.SubjectApplied, n, a, &busy)
			if err != nil || r.Applied == nil {
				t.Errorf("confirmation of %s: %+v, %v", n.Identity, r, err)
			}
			if longest > soon {
				t.Errorf("confirmation of %s was told to wait %d ms, want at most %d", n.Identity, longest, soon)
			}
		})
	}
	all.Wait()
	if busy.Load() == 0 {
		t.Error("nobody was sent away")
	}
	f.Check()
}

// persist repeats a request while the reply is busy, at the time that the reply names. It returns the last reply and
// the longest such wait, in milliseconds. All requests together have ten minutes, for slow machines.
func persist(f *testbed.Fleet, conn *nats.Conn, subject string, n *simnode.Node, message any, busy *atomic.Int64) (r *wire.Reply, longest int64, err error) {
	b, decode, err := simnode.Encode(simnode.Session(conn), message)
	if err != nil {
		return nil, 0, err
	}
	for began := time.Now(); ; {
		m, err := conn.RequestWithContext(f.Context(), subject, b)
		if err != nil {
			return nil, longest, err
		}
		r, err = decode(m.Data)
		switch {
		case err != nil || r.Refusal == nil:
			return r, longest, err
		case r.Refusal.Code == wire.CodeBusy:
			busy.Add(1)
			longest = max(longest, r.Refusal.RetryAfter)
		case !f.RefusedAsStale(n, r):
			return r, longest, nil
		}
		if time.Since(began) > 10*time.Minute {
			return r, longest, errors.New("not within ten minutes")
		}
		<-time.After(r.Refusal.Wait())
	}
}
