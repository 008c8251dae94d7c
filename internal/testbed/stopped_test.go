package testbed_test

import (
	"testing"

	"muster/internal/testbed"
)

// TestAProvisionerStartsWithoutAServer starts a provisioner while one of three
// servers has just been killed, and the others do not know that yet: it is looked
// at when it is back.
func TestAProvisionerStartsWithoutAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	killed := f.Servers()[2]
	killed.Kill()
	f.AddProvisioner("second.fleet.test")
	killed.Start()
	f.WaitProvisioned(f.Agent("web1.example.net", f.Token(nil)))
	f.Check()
}
