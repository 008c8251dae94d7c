package discover_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/discover"
)

// TestWeightsAreShares draws often and compares how often each record comes
// first with the exact share that RFC 2782's algorithm gives it: of the numbers
// 0 to sum, both included, a record of weight w has w, the one at the front
// one more, and records of weight 0 behind the front none.
func TestWeightsAreShares(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		weights []uint16
		first   map[uint16]float64 // share of draws in which this weight is first
	}{
		// Without weights of 0 the one more falls to each with the same chance.
		"10, 20, 70":   {[]uint16{70, 10, 20}, map[uint16]float64{10: (10 + 1.0/3) / 101, 20: (20 + 1.0/3) / 101, 70: (70 + 1.0/3) / 101}},
		"0 and 9":      {[]uint16{9, 0}, map[uint16]float64{0: 1.0 / 10, 9: 9.0 / 10}},
		"0, 0 and 9":   {[]uint16{9, 0, 0}, map[uint16]float64{0: 1.0 / 10, 9: 9.0 / 10}},
		"the greatest": {[]uint16{65535, 1}, map[uint16]float64{1: 1.5 / 65537, 65535: 65535.5 / 65537}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const draws = 100_000
			random := rand.New(rand.NewPCG(1, 2)).Int64N
			first := make(map[uint16]int)
			for range draws {
				drawn := discover.Draw(tt.weights, random)
				first[drawn[0]]++
				if got, want := slices.Sorted(slices.Values(drawn)), slices.Sorted(slices.Values(tt.weights)); !slices.Equal(got, want) {
					t.Fatalf("drew %v of %v", got, want)
				}
			}
			for weight, share := range tt.first {
				got := float64(first[weight]) / draws
				// Five standard deviations; the source is seeded, so this
				// either always passes or never.
				if limit := 5 * math.Sqrt(share*(1-share)/draws); math.Abs(got-share) > limit {
					t.Errorf("weight %d came first in %.4f of draws, want %.4f ± %.4f", weight, got, share, limit)
				}
			}
		})
	}
}

// TestSecondDraw checks that what remains after the first draw is drawn by its
// own weights.
func TestSecondDraw(t *testing.T) {
	t.Parallel()
	const draws = 100_000
	random := rand.New(rand.NewPCG(3, 4)).Int64N
	second, of := 0, 0
	for range draws {
		if drawn := discover.Draw([]uint16{1000, 3000, 60000}, random); drawn[0] == 60000 {
			of++
			if drawn[1] == 3000 {
				second++
			}
		}
	}
	if got, want := float64(second)/float64(of), 3000.5/4001; math.Abs(got-want) > 0.01 {
		t.Errorf("weight 3000 came before 1000 in %.3f of draws, want %.3f", got, want)
	}
}

func TestEqualWeightsOfZeroAreSpread(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6)).Int64N
	seen := make(map[string]bool)
	s := zone(t, choriaName+" 60 IN SRV 0 0 4222 a.example.net.", choriaName+" 60 IN SRV 0 0 4222 b.example.net.", choriaName+" 60 IN SRV 0 0 4222 c.example.net.")
	r := resolver(t, nil, s)
	if got := urls(t, r); len(got) != 3 {
		t.Fatalf("Brokers = %q, want three", got)
	}
	r2 := resolver(t, withRand(random), s)
	for range 100 {
		seen[urls(t, r2)[0]] = true
	}
	if len(seen) != 3 {
		t.Errorf("first of 100 draws: %v, want each of three", seen)
	}
	if got := s.count("udp", choriaName); got != 2 {
		t.Errorf("asked %d times, want once per resolver: each draw is out of the cache", got)
	}
}

// TestEachOfManyBrokersIsTried has more brokers of one priority than a node tries: those
// that it tries first may all be away, and the others must get their share.
func TestEachOfManyBrokersIsTried(t *testing.T) {
	t.Parallel()
	var records []string
	for i := range 200 {
		records = append(records, fmt.Sprintf("%s 60 IN SRV 0 1 4222 broker-%d.example.net.", choriaName, i))
	}
	r := resolver(t, withRand(rand.New(rand.NewPCG(7, 8)).Int64N), zone(t, records...))
	tried := make(map[string]bool)
	for range 50 { // 200 times (1-64/200)^50 are left out: one of a million such tests
		got := urls(t, r)
		if len(got) != 64 {
			t.Fatalf("%d brokers, want 64", len(got))
		}
		for _, u := range got {
			tried[u] = true
		}
	}
	if len(tried) != len(records) {
		t.Errorf("%d brokers are tried of %d", len(tried), len(records))
	}
}

// TestDrawByHand follows the algorithm with numbers chosen by hand.
func TestDrawByHand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		weights []uint16
		numbers []int64 // after those of the shuffle, which leaves all in place
		want    []uint16
	}{
		"0 selects the record of weight 0":   {[]uint16{0, 1, 3}, []int64{0, 0}, []uint16{0, 1, 3}},
		"1 selects the first that reaches 1": {[]uint16{0, 1, 3}, []int64{1, 0}, []uint16{1, 0, 3}},
		"2 selects the next":                 {[]uint16{0, 1, 3}, []int64{2, 0}, []uint16{3, 0, 1}},
		"the sum selects the last":           {[]uint16{0, 1, 3}, []int64{4, 1}, []uint16{3, 1, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			random := func(n int64) int64 {
				calls++
				if calls < len(tt.weights) {
					return n - 1 // a shuffle that swaps each with itself
				}
				number := tt.numbers[calls-len(tt.weights)]
				if number >= n {
					t.Fatalf("asked for a number below %d, want room for %d", n, number)
				}
				return number
			}
			if diff := cmp.Diff(tt.want, discover.Draw(tt.weights, random)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// withRand sets the random source of a resolver.
func withRand(random func(int64) int64) func(*discover.Config) {
	return func(c *discover.Config) { c.Rand = random }
}
