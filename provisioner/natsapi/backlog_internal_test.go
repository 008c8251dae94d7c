package natsapi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
)

// from returns a request that has come from an address.
func from(address string, m *nats.Msg) waiter {
	return waiter{call: &call{Msg: m, source: provisioner.Source{Address: address}}}
}

// TestWhoWaitsIsServedByTurns fills both lines of a backlog before one worker takes from
// them: whichever is longer, the first of the other does not wait for its end.
func TestWhoWaitsIsServedByTurns(t *testing.T) {
	t.Parallel()
	const many = 50
	for _, tt := range []struct{ confirmations, others int }{{many, 3}, {3, many}, {many, 0}, {0, many}} {
		b := newBacklog(2, 2*many, placeBytes)
		for range tt.confirmations {
			b.put(lineConfirmations, from("192.0.2.1", &nats.Msg{Subject: wire.SubjectApplied}))
		}
		for range tt.others {
			b.put(lineOthers, from("192.0.2.1", &nats.Msg{Subject: wire.SubjectEnroll}))
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

// TestWhoSendsMuchWaitsForItself has some senders take all the room that they get before others come:
// these find room, and are served before the second of anybody else.
func TestWhoSendsMuchWaitsForItself(t *testing.T) {
	t.Parallel()
	const room = 60
	for greedy := range 5 {
		b := newBacklog(1, room, placeBytes)
		sends := func(address string) bool { return b.put(0, from(address, &nats.Msg{Reply: address})) }
		took := make(map[string]int)
		for range room {
			for i := range greedy {
				if a := fmt.Sprintf("192.0.2.%d", i); sends(a) {
					took[a]++
				}
			}
		}
		for a, n := range took {
			if n != room/(greedy+1) {
				t.Errorf("%s, one of %d, has %d places of %d", a, greedy, n, room)
			}
		}
		const others = 5
		for i := range others {
			if !sends(fmt.Sprintf("198.51.100.%d", i)) {
				t.Errorf("beside %d that take all they get, the %dth other has no place", greedy, i+1)
			}
		}
		b.close()
		var served []string
		b.each(func(w waiter) { served = append(served, w.Reply) })
		if want := greedy*(room/(greedy+1)) + others; len(served) != want {
			t.Errorf("%d are served, want %d", len(served), want)
		}
		first := slices.Clone(served[:greedy+others])
		slices.Sort(first)
		if len(slices.Compact(first)) != greedy+others {
			t.Errorf("beside %d that take all they get, the first to be served are of %q", greedy, served[:greedy+others])
		}
		// All have their room back.
		for i := range room {
			if !sends(fmt.Sprintf("192.0.2.%d", i)) {
				t.Fatalf("after all are served there is room for %d of %d", i, room)
			}
		}
	}
}

// TestTheNetworkOfAMachineIsOneSender has a machine send from many addresses of its network in IPv6,
// and nobody at all from no address.
func TestTheNetworkOfAMachineIsOneSender(t *testing.T) {
	t.Parallel()
	for _, addresses := range []string{"2001:db8::%d", "::ffff:192.0.2.1", "", "unknown"} {
		b := newBacklog(1, 100, placeBytes)
		n := 0
		for i := range 100 {
			address := addresses
			if strings.Contains(addresses, "%d") {
				address = fmt.Sprintf(addresses, i)
			}
			if b.put(0, from(address, &nats.Msg{})) {
				n++
			}
		}
		if n != 50 {
			t.Errorf("from %q came %d of 100, want half", addresses, n)
		}
	}
}

// TestLargeRequestsTakeMoreRoom fills a backlog with requests of all sizes.
func TestLargeRequestsTakeMoreRoom(t *testing.T) {
	t.Parallel()
	const place = 1000
	for size, want := range map[int]int{0: 50, 1: 50, place: 50, place + 1: 25, 5 * place: 10, 50 * place: 1, 100 * place: 1, 100*place + 1: 0} {
		b := newBacklog(1, 100, place)
		n := 0
		for range 100 {
			if b.put(0, from("192.0.2.1", &nats.Msg{Data: make([]byte, size)})) {
				n++
			}
		}
		if n != want {
			t.Errorf("%d of %d bytes find room, want %d", n, size, want)
		}
	}
}

// TestWorkersTakeWhatComes has several workers wait before anything comes, and end when
// nothing will.
func TestWorkersTakeWhatComes(t *testing.T) {
	t.Parallel()
	b := newBacklog(2, 1, placeBytes)
	took := make(chan *nats.Msg)
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() { b.each(func(w waiter) { took <- w.Msg }) })
	}
	var sent, came []*nats.Msg
	for i := range 20 {
		m, line := &nats.Msg{Subject: wire.SubjectEnroll}, lineOthers
		if i%3 > 0 {
			m, line = &nats.Msg{Subject: wire.SubjectApplied}, lineConfirmations
		}
		sent = append(sent, m)
		if !b.put(line, from("192.0.2.1", m)) {
			t.Fatal("there is no room for one")
		}
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
