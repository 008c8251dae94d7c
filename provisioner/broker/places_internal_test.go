package broker

import (
	"slices"
	"strconv"
	"testing"
)

// TestPlacesCostLittle has connections come and go, come while there is no place, and be refused, and
// expects what is known, and the work on it, to be bounded.
func TestPlacesCostLittle(t *testing.T) {
	t.Parallel()
	const most, times = 2000, 100_000
	alive := map[uint64]bool{}
	looked, full := 0, false
	p := newPlaces(func() bool { return full },
		func(number uint64) bool { looked++; return alive[number] },
		func(number uint64) { delete(alive, number) })
	number := uint64(0)
	come := func(token string) {
		number++
		if p.take(token, number); len(alive) < most {
			alive[number] = true
		}
		full = len(alive) >= most
		if len(p.token) > 4*most {
			t.Fatalf("%d connections known, of which %d are there", len(p.token), len(alive))
		}
	}
	leave := func() {
		for n := range alive {
			delete(alive, n)
			full = false
			break
		}
	}
	for _, what := range []struct {
		name  string
		leave bool
		token func(i int) string
	}{
		{"one token", false, func(int) string { return "one" }},
		{"one token, whose machines come and go", true, func(int) string { return "one" }},
		{"a token for each machine", true, strconv.Itoa},
		{"a token for each machine, and none goes", false, strconv.Itoa},
		{"two tokens", true, func(i int) string { return strconv.Itoa(i % 2) }},
	} {
		looked = 0
		for i := range times {
			come(what.token(i))
			if what.leave && len(alive) >= most {
				leave()
			}
		}
		if each := looked / times; each > 40 {
			t.Errorf("%s: each that comes has %d connections looked at, want a few", what.name, each)
		}
		known := 0
		for _, n := range p.held {
			known += n
		}
		if known != len(p.token) {
			t.Errorf("%s: %d connections known by token, %d by number", what.name, known, len(p.token))
		}
	}
}

// TestWhoIsRefusedHasNoPlaceToGive has a token take all places and ask for one more, which the server is
// about to refuse: to end that one makes room for nobody.
func TestWhoIsRefusedHasNoPlaceToGive(t *testing.T) {
	t.Parallel()
	const most = 6
	full := false
	var ended []uint64
	p := newPlaces(func() bool { return full }, func(uint64) bool { return true }, func(n uint64) { ended = append(ended, n) })
	for n := range uint64(most) {
		p.take("first", n)
	}
	full = true
	p.take("first", most)
	if len(ended) > 0 {
		t.Fatalf("ended %v, want nobody who gives way to his own token", ended)
	}
	p.take("second", most+1)
	if !slices.Contains(ended, most-1) || slices.Contains(ended, most-2) {
		t.Errorf("ended %v, want of those with a place the newest", ended)
	}
}

// TestAConnectionThatPresentsAnotherToken counts for that one, and saying the same again is
// nothing.
func TestAConnectionThatPresentsAnotherToken(t *testing.T) {
	t.Parallel()
	full := false
	var ended []uint64
	p := newPlaces(func() bool { return full }, func(uint64) bool { return true }, func(n uint64) { ended = append(ended, n) })
	for n := range uint64(5) {
		p.take("first", n)
	}
	full = true
	for range 5 {
		p.take("first", 4)
	}
	p.take("second", 4)
	p.take("second", 4)
	if len(ended) != 1 || ended[0] != 3 || p.held["first"] != 3 || p.held["second"] != 1 {
		t.Errorf("ended %v, held %v: want the newest of the first token's ended, once", ended, p.held)
	}
}
