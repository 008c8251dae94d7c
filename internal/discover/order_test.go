package discover_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"muster/internal/discover"
)

// TestWeightsAreShares compares many draws with the exact shares of RFC 2782. Of the numbers 0 to sum, a record of
// weight w has w, the first record one more, and records of weight 0 behind it none.
func TestWeightsAreShares(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		weights []uint16
		first   map[uint16]float64 // share of draws in which this weight is first
	}{
		// Without weights of 0, each record has the same chance to be first.
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
				// Five standard deviations; the seeded source makes the result the same each time.
				if limit := 5 * math.Sqrt(share*(1-share)/draws); math.Abs(got-share) > limit {
					t.Errorf("weight %d came first in %.4f of draws, want %.4f ± %.4f", weight, got, share, limit)
				}
			}
		})
	}
}

// Of more brokers than a node tries, each must get its share, since the first ones may be down.
func TestEachOfManyBrokersGetsItsShare(t *testing.T) {
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

func withRand(random func(int64) int64) func(*discover.Config) {
	return func(c *discover.Config) { c.Rand = random }
}
