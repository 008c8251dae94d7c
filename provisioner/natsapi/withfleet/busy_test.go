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

// TestAllWhoAreSentAwayGetIn has 300 nodes ask at once right after a start of a
// service with room for ten. They come back when they are told to, and all are
// provisioned. Who has enrolled, and only has that to confirm, is not told to
// queue up behind those who have not begun.
func TestAllWhoAreSentAwayGetIn(t *testing.T) {
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

// persist asks again for as long as it is sent away, when it is told to, and
// returns the last reply and the longest time that it was told, in milliseconds. A
// machine with much else to do has ten minutes for all who ask.
func persist(f *testbed.Fleet, conn *nats.Conn, subject string, n *simnode.Node, message any, busy *atomic.Int64) (r *wire.Reply, longest int64, err error) {
	b, decode, err := simnode.Encode(conn, message)
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
