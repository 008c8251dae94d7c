package fleet_test

import (
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/fleet"
)

// Nodes renew between two thirds and three quarters of a certificate's life.
func TestLate(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	f.put(t, record("b.example.net", nil))
	f.put(t, record("a.example.net", func(r *provisioner.Record) {
		r.Current.NotAfter = noon.Add(719 * time.Hour)
		r.Fault = &provisioner.Fault{Cause: "disk full", At: noon}
	}))
	f.put(t, record("gone.example.net", func(r *provisioner.Record) { r.State = provisioner.StateRetired }))
	f.put(t, record("web1.puppet.example.net", func(r *provisioner.Record) { r.Protocol = provisioner.ProtocolPuppet }))
	x.Settled(noon, false)
	for hours, want := range map[int]int{481: 0, 539: 0, 541: 2, 719: 1, 721: 0} {
		late := x.Late(noon.Add(time.Duration(hours) * time.Hour))
		if len(late) != want {
			t.Errorf("after %d h: %+v, want %d", hours, late, want)
		}
	}
	late := x.Late(noon.Add(550 * time.Hour))
	if len(late) == 2 && (late[0].Fault != "disk full" || late[1].Fault != "" || late[1].Connected != fleet.No) {
		t.Errorf("late: %+v", late)
	}
}
