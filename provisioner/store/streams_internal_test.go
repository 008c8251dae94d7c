package store

import "testing"

// TestSeveralReplicasAreReadFromTheLeader keeps reads on which something is
// decided from the replicas that lag.
func TestSeveralReplicasAreReadFromTheLeader(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		for _, c := range streams(replicas, 0, 0) {
			if reports(c.Name) {
				continue // nothing is decided on them
			}
			if c.AllowDirect != (replicas == 1) || c.Replicas != replicas {
				t.Errorf("%s of %d replicas: %d, direct reads %v", c.Name, replicas, c.Replicas, c.AllowDirect)
			}
		}
	}
}
