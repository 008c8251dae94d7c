package provisioner

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestTurnsGoToThoseNearestTheirEnd has requests come while somebody computes.
func TestTurnsGoToThoseNearestTheirEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{free: 1}
		done := turns.take(phaseProve)
		var order []phase // each is appended in its turn
		for _, f := range []phase{phaseProve, phaseIssue, phaseDecide, phaseConfirm, phaseDecide} {
			go func() {
				defer turns.take(f)()
				order = append(order, f)
			}()
		}
		synctest.Wait() // all wait
		if len(order) != 0 {
			t.Errorf("%v went in somebody else's turn", order)
		}
		done()
		synctest.Wait()
		if want := []phase{phaseConfirm, phaseIssue, phaseDecide, phaseDecide, phaseProve}; !slices.Equal(order, want) {
			t.Errorf("turns went to %v, want %v", order, want)
		}
		if turns.free != 1 {
			t.Errorf("%d turns are free in the end, want 1", turns.free)
		}
	})
}

// TestTurnsAreAsManyAsThereWere has a crowd pass, one in ten of whom panics.
func TestTurnsAreAsManyAsThereWere(t *testing.T) {
	t.Parallel()
	const places = 3
	turns := &turns{free: places}
	var at, most atomic.Int64
	var crowd sync.WaitGroup
	for i := range 300 {
		crowd.Go(func() {
			defer func() { _ = recover() }()
			defer turns.take(phase(i) % phases)()
			n := at.Add(1)
			defer at.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			if i%10 == 0 {
				panic("a bug")
			}
		})
	}
	crowd.Wait()
	if most.Load() > places || turns.free != places {
		t.Errorf("%d at a time and %d turns in the end, want %d", most.Load(), turns.free, places)
	}
}
