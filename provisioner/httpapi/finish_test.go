package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestAChangeIsFinishedWhenItsOperatorGoes has an operator give up while a record
// is written, whose acknowledgement is lost as well: the provisioner looks what has
// become of it, and tells everybody.
func TestAChangeIsFinishedWhenItsOperatorGoes(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	ctx, goes := context.WithCancel(f.Context())
	gone := make(chan struct{})
	f.Faults.Inject(testbed.LostAnswer)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		goes()
		<-gone
		select { // a server that sees that its client has gone takes less than a millisecond
		case <-ctx.Done():
			t.Error("the change ends with its operator")
		case <-time.After(100 * time.Millisecond):
		}
	})
	err := client(f).Do(ctx, http.MethodPost, "/v1/nodes/"+n.Identity+"/revoke", httpapi.Reason{Why: "a test"}, nil)
	close(gone)
	if err == nil {
		t.Error("the operator was told although he had gone")
	}
	f.Eventually("the record says so", func() bool { return f.Record(n.Identity).State == provisioner.StateRevoked })
	f.Eventually("it is reported", func() bool {
		return slices.ContainsFunc(f.Events(), func(e provisioner.Event) bool { return e.Type == provisioner.EventRevoked && e.Node == n.Identity })
	})
	f.Check()
}
