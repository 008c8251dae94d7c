package provisioner_test

import (
	"strings"
	"testing"
	"time"

	"muster/provisioner"
)

// TestGoneComponents says who is gone by the store's clock alone.
func TestGoneComponents(t *testing.T) {
	t.Parallel()
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC) // nobody else's
	heard := func(name string, ago time.Duration, stopped bool) *provisioner.HeardComponent {
		return &provisioner.HeardComponent{Component: provisioner.Component{Name: name, Stopped: stopped}, Heard: now.Add(-ago)}
	}
	all := []*provisioner.HeardComponent{
		heard("newest", 0, false), heard("late", provisioner.ComponentGone, false), heard("gone", provisioner.ComponentGone+time.Nanosecond, false), heard("stopped", time.Second, true),
	}
	provisioner.MarkGone(all)
	for i, want := range []bool{false, false, true, true} {
		if all[i].Gone != want {
			t.Errorf("%s: gone is %v, want %v", all[i].Name, all[i].Gone, want)
		}
	}
}

// TestFactsThatDiffer says which provisioners keep what others do not.
func TestFactsThatDiffer(t *testing.T) {
	t.Parallel()
	keeps := func(name string, facts ...string) *provisioner.HeardComponent {
		return &provisioner.HeardComponent{Component: provisioner.Component{Name: name, Features: []provisioner.Feature{provisioner.NewFactsFeature(facts, nil)}}}
	}
	gone, earlier := keeps("gone", "tier"), &provisioner.HeardComponent{Component: provisioner.Component{Name: "earlier"}}
	gone.Gone = true
	const begins = "fleet.facts differs between provisioners, which should all name the same: "
	for name, tt := range map[string]struct {
		all  []*provisioner.HeardComponent
		want string
	}{
		"the same":  {[]*provisioner.HeardComponent{keeps("a", "role", "os.name"), keeps("b", "os.name", "role"), gone, earlier}, ""},
		"none":      {[]*provisioner.HeardComponent{keeps("a"), keeps("b")}, ""},
		"one more":  {[]*provisioner.HeardComponent{keeps("a", "os.name"), keeps("b", "role", "os.name"), keeps("c", "os.name")}, "a, c: none of these; b: role"},
		"one none":  {[]*provisioner.HeardComponent{keeps("a", "role", "os.name"), keeps("b")}, "b: none of these; a: os.name, role"},
		"each else": {[]*provisioner.HeardComponent{keeps("a", "os.name", "rack"), keeps("b", "os.name", "role")}, "a: rack; b: role"},
	} {
		got := ""
		if err := provisioner.FactsDiffer(tt.all); err != nil {
			got = strings.TrimPrefix(err.Error(), begins)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
