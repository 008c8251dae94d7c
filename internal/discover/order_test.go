package discover_test

import (
	"fmt"
	"math"
	"testing"
)

// TestWeightsAreShares compares many draws with the shares of RFC 2782.
func TestWeightsAreShares(t *testing.T) {
	t.Parallel()
	for name, weights := range map[string][]int{
		"10, 20, 70":   {70, 10, 20},
		"no weights":   {0, 0, 0},
		"0 beside 100": {100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const draws = 2000
			var records []string
			sum := 0.0
			for i, w := range weights {
				records = append(records, fmt.Sprintf("%s 60 IN SRV 0 %d 4222 broker-%d.example.net.", choriaName, w, i))
				sum += max(float64(w), 0.1)
			}
			s, first := zone(t, records...), make(map[string]int)
			for range draws {
				first[urls(t, s)[0]]++
			}
			for i, w := range weights {
				share := max(float64(w), 0.1) / sum
				got := float64(first[fmt.Sprintf("nats://broker-%d.example.net:4222", i)]) / draws
				// Seven standard deviations: one of a billion such tests fails.
				if limit := 7 * math.Sqrt(max(share*(1-share), 1.0/draws)/draws); math.Abs(got-share) > limit {
					t.Errorf("weight %d came first in %.4f of draws, want %.4f ± %.4f", w, got, share, limit)
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
	s, tried := zone(t, records...), make(map[string]bool)
	for range 60 { // 200 times (1-64/200)^60 are left out: one of fifty million such tests
		got := urls(t, s)
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
