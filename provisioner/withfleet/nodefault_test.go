package provisioner_test

import (
	"testing"

	"muster/internal/testbed"
	"muster/provisioner/events"
)

// TestAReportedFaultIsOnRecordUntilItEnds also has repeated reports, which change nothing.
func TestAReportedFaultIsOnRecordUntilItEnds(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	e := f.Enroll(n)
	f.Apply(n, e)
	p := f.Daemon().Operator()
	for _, cause := range []string{"facts: too large", "facts: too large", ""} {
		p.NoteFault(f.Context(), web1, e.Serial, cause)
		if got := f.Record(web1).Fault.Text(); got != cause {
			t.Fatalf("fault on record: %q, want %q", got, cause)
		}
		if cause != "" {
			f.WaitAlarm(events.AlarmNodesFaulty)
		}
	}
	f.WaitNoAlarm(events.AlarmNodesFaulty)
	f.Eventually("events", func() bool {
		return len(emitted(f, events.Faulty)) == 1 && len(emitted(f, events.FaultEnded)) == 1
	})
	f.Check()
}
