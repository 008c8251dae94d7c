package bench

import "testing"

// TestSpeed finds that everything takes some time.
func TestSpeed(t *testing.T) {
	t.Parallel()
	s, err := speed()
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]float64{"a signature": s.Verify, "a read": s.Read, "a page": s.Page, "a system call": s.Syscall} {
		if got <= 0 {
			t.Errorf("%s takes %v in %+v", what, got, s)
		}
	}
}

// TestReadsGoEverywhere follows the places from one to the next: all are read
// once before the first is again.
func TestReadsGoEverywhere(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 1024, 3000} {
		places := chained(n)
		at, steps := places[0], 1
		for ; at != 0; at = places[at] {
			if steps++; steps > n {
				t.Fatalf("%d places: a way round that the first is not on", n)
			}
		}
		if steps != n {
			t.Errorf("of %d places %d are read", n, steps)
		}
	}
}
