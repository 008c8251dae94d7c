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
	come := func(from origin) {
		number++
		if p.take(from, number); len(alive) < most {
			alive[number] = true
		}
		full = len(alive) >= most
		if len(p.from) > 4*most {
			t.Fatalf("%d connections known, of which %d are there", len(p.from), len(alive))
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
		from  func(i int) origin
	}{
		{"one token", false, func(int) origin { return origin{"one", ""} }},
		{"one token, whose machines come and go", true, func(int) origin { return origin{"one", ""} }},
		{"a token for each machine", true, func(i int) origin { return origin{strconv.Itoa(i), ""} }},
		{"a token for each machine, and none goes", false, func(i int) origin { return origin{strconv.Itoa(i), ""} }},
		{"two tokens", true, func(i int) origin { return origin{strconv.Itoa(i % 2), ""} }},
		{"an address for each machine", true, func(i int) origin { return origin{"one", strconv.Itoa(i)} }},
		{"an address for each machine, and none goes", false, func(i int) origin { return origin{"one", strconv.Itoa(i)} }},
		{"two addresses", true, func(i int) origin { return origin{"one", strconv.Itoa(i % 2)} }},
	} {
		looked = 0
		for i := range times {
			come(what.from(i))
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
		for _, n := range p.alike {
			known -= n
		}
		if known != 0 {
			t.Errorf("%s: %d more connections known by token than by token and address", what.name, known)
		}
		for _, n := range p.held {
			known += n
		}
		if known != len(p.from) {
			t.Errorf("%s: %d connections known by token, %d by number", what.name, known, len(p.from))
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
		p.take(origin{token: "first"}, n)
	}
	full = true
	p.take(origin{token: "first"}, most)
	if len(ended) > 0 {
		t.Fatalf("ended %v, want nobody who gives way to his own token", ended)
	}
	p.take(origin{token: "second"}, most+1)
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
		p.take(origin{token: "first"}, n)
	}
	full = true
	for range 5 {
		p.take(origin{token: "first"}, 4)
	}
	p.take(origin{token: "second"}, 4)
	p.take(origin{token: "second"}, 4)
	if len(ended) != 1 || ended[0] != 3 || p.held["first"] != 3 || p.held["second"] != 1 {
		t.Errorf("ended %v, held %v: want the newest of the first token's ended, once", ended, p.held)
	}
}

// TestPlacesOfATokenGoToOtherAddresses has one address take all places with a token that others
// have as well: one of these gets that of the newest of the address, until they have a third. Where another
// token wants a place, it is of that address, too.
func TestPlacesOfATokenGoToOtherAddresses(t *testing.T) {
	t.Parallel()
	const most = 12
	full := false
	var ended []uint64
	p := newPlaces(func() bool { return full }, func(n uint64) bool { return !slices.Contains(ended, n) }, func(n uint64) { ended = append(ended, n) })
	for n := range uint64(most) {
		p.take(origin{"fleet", "thief"}, n)
	}
	full = true
	number := uint64(most)
	come := func(token, source string) (end []uint64) {
		before := len(ended)
		p.take(origin{token, source}, number)
		number++
		return ended[before:]
	}
	for n := range uint64(4) {
		if end := come("fleet", "other"); !slices.Contains(end, most-1-n) {
			t.Fatalf("for the %dth from another address there end %v, want the newest from the one that has all", n+1, end)
		}
	}
	if end := come("fleet", "thief"); len(end) > 0 {
		t.Errorf("the address gets the places %v back", end)
	}
	if end := come("second", "other"); !slices.Contains(end, most-5) {
		t.Errorf("for another token there end %v, want the newest from the address that has most", end)
	}
}
