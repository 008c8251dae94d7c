package testbed_test

import (
	"testing"

	"muster/internal/testbed"
)

// TestAClusterEnrolls is the whole way over three nats-server processes and two
// provisioners: plain and sealed, over every server, up to the fleet.
func TestAClusterEnrolls(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	f.AddProvisioner("second.fleet.test")
	f.WaitProvisioned(f.Agent("plain.example.net", f.Token(nil)), f.Agent("sealed.example.net", f.Token(f.Seal)))
	f.Check()
}
