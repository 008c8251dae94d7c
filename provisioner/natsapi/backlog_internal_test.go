package natsapi

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// TestWhoWaitsIsServedByTurns fills both queues of a backlog before one worker takes from
// them: whichever is longer, the first of the other does not wait for its end.
func TestWhoWaitsIsServedByTurns(t *testing.T) {
	t.Parallel()
	const many = 50
	for _, tt := range []struct{ confirmations, others int }{{many, 3}, {3, many}, {many, 0}, {0, many}} {
		b := newBacklog(many)
		for range tt.confirmations {
			b.confirmations <- waiter{Msg: &nats.Msg{Subject: wire.SubjectApplied}}
		}
		for range tt.others {
			b.others <- waiter{Msg: &nats.Msg{Subject: wire.SubjectEnroll}}
		}
		if n := b.len(); n != tt.confirmations+tt.others {
			t.Errorf("%d wait, want %d", n, tt.confirmations+tt.others)
		}
		b.close()
		var served []string
		b.each(func(w waiter) { served = append(served, w.Subject) })
		if len(served) != tt.confirmations+tt.others {
			t.Errorf("%d are served, want %d", len(served), tt.confirmations+tt.others)
		}
		fewer := min(tt.confirmations, tt.others)
		for _, subject := range []string{wire.SubjectApplied, wire.SubjectEnroll} {
			n := 0
			for _, s := range served[:2*fewer] {
				if s == subject {
					n++
				}
			}
			if n != fewer {
				t.Errorf("of %d and %d, the first %d are %q", tt.confirmations, tt.others, 2*fewer, served[:2*fewer])
			}
		}
	}
}

// TestWorkersTakeWhatComes has several workers wait before anything comes, and end when
// nothing will.
func TestWorkersTakeWhatComes(t *testing.T) {
	t.Parallel()
	b := newBacklog(1)
	took := make(chan *nats.Msg)
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() { b.each(func(w waiter) { took <- w.Msg }) })
	}
	var sent, came []*nats.Msg
	for i := range 20 {
		m := &nats.Msg{Subject: wire.SubjectEnroll}
		queue := b.others
		if i%3 > 0 {
			m.Subject, queue = wire.SubjectApplied, b.confirmations
		}
		sent = append(sent, m)
		queue <- waiter{Msg: m}
		select {
		case m := <-took:
			came = append(came, m)
		case <-time.After(time.Minute):
			t.Fatal("nobody takes it")
		}
	}
	b.close()
	workers.Wait()
	if !slices.Equal(sent, came) {
		t.Errorf("%d came of %d", len(came), len(sent))
	}
}
