package testbed_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// TestServersThatDoNotDropConnections takes the permission to drop connections from a
// provisioner as it runs, and gives it back.
func TestServersThatDoNotDropConnections(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	s := f.Servers()[0]
	path := filepath.Join(s.Dir, "nats-server.conf")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Signal(syscall.SIGHUP)
	}
	f.Enroll(f.Node("web1.example.net"))
	reload(strings.Replace(string(b), "$SYS.REQ.SERVER.*.KICK", "nobody", 1))
	if cause := f.WaitAlarm(provisioner.AlarmBrokersMisconfigured); !strings.Contains(cause, "KICK") || !strings.Contains(cause, "muster broker config") {
		t.Errorf("the alarm says %q: want what is not permitted, and what to do", cause)
	}
	reload(string(b))
	f.WaitNoAlarm(provisioner.AlarmBrokersMisconfigured)
	f.Enroll(f.Node("web2.example.net"))
	f.Check()
}

// TestAProvisionerWithAnotherXKey starts a second provisioner that has another key than the
// servers and the first one: both say so at once, before any node is turned away by it.
func TestAProvisionerWithAnotherXKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "xkey")
	if err := os.WriteFile(other, []byte(string(keys.XKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const name = "second.fleet.test"
	d, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), daemon.Options{Now: f.Clock.Now, Log: slog.New(slog.DiscardHandler)}, func(c *daemon.Config) {
		c.Name, c.DataDir, c.Revocations.Journal = name, filepath.Join(f.Dir, "data-"+name), ""
		c.Broker.External.Callout.XKey = other
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if cause := f.WaitAlarm(provisioner.AlarmBrokersMisconfigured); !strings.Contains(cause, "broker.callout.xkey") || !strings.Contains(cause, name) {
		t.Errorf("the first one says %q: want which key differs, and from whose", cause)
	}
	f.Eventually("the second one says so, too", func() bool {
		for _, a := range d.Alarms() {
			if a.Code == provisioner.AlarmBrokersMisconfigured && strings.Contains(a.Cause, "broker.callout.xkey") {
				return true
			}
		}
		return false
	})
}
