package testbed_test

import (
	"testing"

	"muster/internal/testbed"
)

// One of three servers was just killed, and the remaining ones do not know it yet. The provisioner checks it on its
// return.
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
