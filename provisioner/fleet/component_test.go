package fleet_test

import (
	"testing"
	"time"

	"muster/provisioner/fleet"
)

// TestGoneComponents judges by the store's clock alone.
func TestGoneComponents(t *testing.T) {
	t.Parallel()
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC) // no other clock
	heard := func(name string, ago time.Duration, stopped bool) *fleet.HeardComponent {
		return &fleet.HeardComponent{Component: fleet.Component{Name: name, Stopped: stopped}, Heard: now.Add(-ago)}
	}
	all := []*fleet.HeardComponent{
		heard("newest", 0, false), heard("late", fleet.ComponentGone, false),
		heard("gone", fleet.ComponentGone+time.Nanosecond, false), heard("stopped", time.Second, true),
	}
	fleet.MarkGone(all)
	for i, want := range []bool{false, false, true, true} {
		if all[i].Gone != want {
			t.Errorf("%s: gone is %v, want %v", all[i].Name, all[i].Gone, want)
		}
	}
}
