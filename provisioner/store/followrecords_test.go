package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/store"
)

// A member is one of several provisioners of a store, with its own index.
type member struct {
	store *store.Store
	conn  *nats.Conn
	index *fleet.Index
	leave func() // returns when the index has stopped
}

// join adds a provisioner with its own connection and an up-to-date index.
func (s *site) join(t *testing.T) *member {
	t.Helper()
	conn, err := s.broker.Connect("member")
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(s.ctx, store.Config{Conn: conn, CAFingerprint: ours})
	if err != nil {
		t.Fatal(err)
	}
	m := &member{store: st, conn: conn, index: fleet.NewIndex(st, slog.New(slog.DiscardHandler), nil)}
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.index.Run(ctx) }()
	m.leave = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("index: %v", err)
		}
		conn.Close()
	})
	t.Cleanup(m.leave)
	if _, err := m.index.List(s.ctx, fleet.Query{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// agrees waits until the indexes agree with every node's record.
func (s *site) agrees(t *testing.T, members ...*member) {
	t.Helper()
	var wrong string
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ; s.ctx.Err() == nil; <-again.C {
		stored := make(map[wire.Identity]provisioner.Brief)
		revisions := make(map[wire.Identity]trust.Revision)
		err := members[0].store.Records(s.ctx, func(r *provisioner.Record, revision trust.Revision) error {
			stored[r.Identity], revisions[r.Identity] = r.Brief(), revision
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wrong = ""
		for i, m := range members {
			p, err := m.index.List(s.ctx, fleet.Query{Query: paging.Query{Limit: paging.MaxLimit}})
			if err != nil {
				t.Fatal(err)
			}
			if p.Total != len(stored) {
				wrong = fmt.Sprintf("member %d lists %d nodes, want %d", i, p.Total, len(stored))
			}
			for _, n := range p.Nodes {
				want := stored[n.Identity]
				if n.Revision != revisions[n.Identity] || n.State != want.State || n.Agent != want.Agent ||
					!n.Changed.Equal(want.Changed) || n.Offered != want.Offered {
					wrong = fmt.Sprintf("member %d: %+v at %d, want %+v at %d", i, n, n.Revision, want,
						revisions[n.Identity])
				}
			}
		}
		if wrong == "" {
			return
		}
	}
	t.Fatal(wrong)
}

// lose writes a record without learning of its acknowledgement.
func (m *member) lose(ctx context.Context, r *provisioner.Record, after trust.Revision) error {
	b, err := wire.EncodeJSON(r)
	if err != nil {
		return err
	}
	js, err := jetstream.New(m.conn)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, "muster.node."+r.Identity.SubjectToken(), b,
		jetstream.WithExpectLastSequencePerSubject(uint64(after)))
	return err
}

// enroll writes the records of n nodes.
func (s *site) enroll(t *testing.T, st *store.Store, n int) {
	t.Helper()
	for i := range n {
		if _, err := st.Put(s.ctx, enrolled(node(i)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIndexesAgreeWithTheStore has several provisioners write records of the same nodes, some without an
// acknowledgement, while members leave and join. In the end every index agrees with the store.
func TestIndexesAgreeWithTheStore(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	s, _ := start(t, t.TempDir())
	const nodes, writes = 20, 50
	write := func(m *member, number int) {
		for i := range writes {
			id := wire.Identity(fmt.Sprintf("web%d.example.net", rand.IntN(nodes)))
			_, after, err := m.store.Record(s.ctx, id)
			if err != nil {
				t.Error(err)
				return
			}
			r := enrolled(id)
			r.Agent = fmt.Sprintf("%d/%d", number, i)
			if i%10 == 9 {
				err = m.lose(s.ctx, r, after)
			} else {
				_, err = m.store.Put(s.ctx, r, after)
			}
			var refused *jetstream.APIError
			if err != nil && !errors.Is(err, trust.ErrConflict) && !errors.As(err, &refused) {
				t.Errorf("member %d: %v", number, err)
				return
			}
		}
	}
	at := func(members ...*member) {
		var writers sync.WaitGroup
		for i, m := range members {
			writers.Go(func() { write(m, i) })
		}
		writers.Wait()
	}
	a, b := s.join(t), s.join(t)
	at(a) // alone
	s.agrees(t, a, b)
	at(a, b, a, b) // several requests in each
	s.agrees(t, a, b)
	c := s.join(t)
	b.leave()
	at(a, c)
	s.agrees(t, a, c)
}

// TestOwnRecordsAreNotRead expects own records from the queue and not from the broker. Records of other processes and
// unacknowledged ones come from the broker, and late ones replace no newer ones.
func TestOwnRecordsAreNotRead(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.open(t, ours)
	f := follow(t, st)
	f.wait(t, "it is current", func() bool { return f.currents > 0 })
	const own = 60
	s.enroll(t, st, own)
	f.wait(t, "all are handed over", func() bool { return f.own == own && len(f.newest) == own })
	other := s.join(t)
	second, err := other.store.Put(s.ctx, enrolled(web2), 0)
	if err != nil {
		t.Fatal(err)
	}
	f.wait(t, "another's record comes", func() bool { return f.newest[web2] == second })
	if err := other.lose(s.ctx, enrolled(web2), second); err != nil {
		t.Fatal(err)
	}
	f.wait(t, "one without an acknowledgement comes", func() bool { return f.newest[web2] == second+1 })
	f.look(func() {
		// A record whose acknowledgement takes longer than a check is read.
		if f.own != own || f.calls > own+own/4 {
			t.Errorf("%d came, %d were handed over, want %d and %d", f.calls, f.own, own+2, own)
		}
	})
	s.agrees(t, other)
}

// TestBusyProvisionerReadsAllRecords writes all the time while the first records are read.
func TestBusyProvisionerReadsAllRecords(t *testing.T) {
	t.Parallel()
	s, _ := start(t, t.TempDir())
	st := s.open(t, ours)
	const before = 300
	s.enroll(t, st, before)
	ctx, cancel := context.WithCancel(s.ctx)
	const writers = 8 // for it to count as busy
	var next atomic.Int64
	next.Store(before)
	written := make(chan error, writers)
	for range writers {
		go func() {
			for ctx.Err() == nil {
				if _, err := st.Put(s.ctx, enrolled(node(int(next.Add(1)))), 0); err != nil {
					written <- err
					return
				}
			}
			written <- nil
		}()
	}
	f := follow(t, s.open(t, ours))
	own := follow(t, st)
	for what, f := range map[string]*followed{"its own": own, "another's": f} {
		f.wait(t, what+" index is current", func() bool { return f.currents > 0 && len(f.newest) >= before })
	}
	cancel()
	for range writers {
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}
