package testbed_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestALimitOfTheAccountIsWantOfRoom has an operator of the brokers give the provisioners'
// account less than it has stored: new names are told to wait, and the alarm says why. Who is
// revoked meanwhile is kept out here, and everywhere as soon as there is room.
func TestALimitOfTheAccountIsWantOfRoom(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	change := func(from, to string) {
		t.Helper()
		path := filepath.Join(f.Servers()[0].Dir, "nats-server.conf")
		b, err := os.ReadFile(path)
		if err != nil || strings.Count(string(b), from) != 1 {
			t.Fatalf("%q is not once in %s: %v", from, path, err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Servers()[0].Signal(syscall.SIGHUP)
	}
	member := f.Node("member.example.net")
	f.Apply(member, f.Enroll(member))
	const enabled, limited = "jetstream: enabled", "jetstream: {max_mem: 0, max_file: 4096}"
	change(enabled, limited)
	if cause := f.WaitAlarm(wire.CodeStorageLow); !strings.Contains(cause, "resource limits exceeded for account") {
		t.Errorf("alarm %q, want that it says which limit", cause)
	}
	for _, a := range f.Daemon().Alarms() {
		if a.Code == wire.CodeStoreUnavailable {
			t.Errorf("the store counts as away: %s", a.Cause)
		}
	}
	if code := f.Refused(f.Node("new.example.net")); code != wire.CodeStorageLow {
		t.Errorf("a new name is refused as %s, want %s", code, wire.CodeStorageLow)
	}
	if err := f.Daemon().Operator().RevokeNode(f.Context(), "member.example.net", testbed.Operator()); !errors.Is(err, provisioner.ErrPending) {
		t.Errorf("revoked without room: %v, want %v", err, provisioner.ErrPending)
	}
	if code := f.Refused(member); code != wire.CodeIdentityRevoked {
		t.Errorf("a revoked machine is refused as %s, want %s", code, wire.CodeIdentityRevoked)
	}
	change(limited, enabled)
	f.WaitNoAlarm(wire.CodeStorageLow)
	n := f.Node("new.example.net")
	f.Apply(n, f.Enroll(n))
	f.Eventually("the revocation is on record", func() bool {
		r := f.Record("member.example.net")
		return r != nil && r.State == provisioner.StateRevoked
	})
	f.Check()
}
