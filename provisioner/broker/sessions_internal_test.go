package broker

import (
	"fmt"
	"testing"

	"muster/internal/wire"
)

// TestSessionsThatAreGoneAreForgotten has nodes that each come once and go, and
// nodes that stay, and expects what is known to be bounded by what is there.
func TestSessionsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	const stay = 300
	alive := func(number uint64) bool { return number < stay }
	s := newSessions(alive, nil, 2)
	for i := range uint64(100_000) {
		s.add(wire.Identity(fmt.Sprintf("web%d.example.net", i)), session{number: i})
		if s.known > max(minSweep, 2*stay) {
			t.Fatalf("%d sessions known after %d, of which %d are there", s.known, i+1, stay)
		}
	}
	for i := range uint64(stay) {
		id := wire.Identity(fmt.Sprintf("web%d.example.net", i))
		if got := s.of(id); len(got) != 1 || got[0].number != i {
			t.Fatalf("sessions of %s = %+v, want number %d", id, got, i)
		}
	}
	if got := s.of("web99999.example.net"); len(got) > 0 {
		t.Errorf("sessions of a node that has gone = %+v", got)
	}
}

// TestOneSessionIsKnownOnce has a node connect twice, CONNECT twice on one of
// the two, and end the other.
func TestOneSessionIsKnownOnce(t *testing.T) {
	t.Parallel()
	gone := map[uint64]bool{}
	s := newSessions(func(number uint64) bool { return !gone[number] }, nil, 2)
	for _, number := range []uint64{1, 2, 2} {
		s.add("web1.example.net", session{number: number})
	}
	if got := s.of("web1.example.net"); len(got) != 2 || s.known != 2 {
		t.Fatalf("sessions = %+v, %d known, want 2", got, s.known)
	}
	gone[1] = true
	if got := s.of("web1.example.net"); len(got) != 1 || got[0].number != 2 || s.known != 1 {
		t.Fatalf("sessions = %+v, %d known, want number 2 alone", got, s.known)
	}
	gone[2] = true
	if got := s.of("web1.example.net"); len(got) != 0 || s.known != 0 || len(s.nodes) != 0 {
		t.Errorf("sessions = %+v, %d known of %d nodes, want none", got, s.known, len(s.nodes))
	}
}
