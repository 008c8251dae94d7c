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

// TestAdmissionsGetTheirShare has connections to be admitted come with requests, and
// expects them to go last, but for one turn in so many: with none, those who are connected could keep
// everybody else out, and with more nobody who is connected would get done.
func TestAdmissionsGetTheirShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := &turns{free: 1}
		done := turns.take(phaseProve)
		var order []phase // each is appended in its turn
		const each = 3 * admitShare
		for range each {
			for _, f := range []phase{phaseAdmit, phaseConfirm} {
				go func() {
					defer turns.take(f)()
					order = append(order, f)
				}()
			}
		}
		synctest.Wait() // all wait
		done()
		synctest.Wait()
		admitted := 0
		for i, f := range order {
			if f != phaseAdmit {
				continue
			}
			admitted++
			if n := i + 1; admitted > n/admitShare && n-admitted < each {
				t.Errorf("%d of the first %d turns went to admissions while requests waited, want one of %d", admitted, n, admitShare)
			}
		}
		if len(order) != 2*each {
			t.Errorf("turns went to %v", order)
		}
		if first := slices.Index(order, phaseAdmit); first != admitShare-1 {
			t.Errorf("the first admission had turn %d, want %d", first+1, admitShare)
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
