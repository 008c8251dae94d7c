package server_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// Before first boot a machine is called localhost. Once it has a name, its own key would be another node's.
func TestAMachineWithoutANameDoesNotEnroll(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("")
	for _, name := range []string{"localhost", "LOCALHOST.", "localhost.localdomain"} {
		cfg.SetMachineName(name)
		s, err := server.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err = s.Run(ctx)
		if err == nil || !strings.Contains(err.Error(), "localhost") || !strings.Contains(err.Error(), "--identity") {
			t.Errorf("%s: Run = %v, want that this is no name, and what to do", name, err)
		}
	}
	if n := len(f.requests()); n > 0 {
		t.Errorf("%d requests as localhost", n)
	}
	cfg.SetMachineName("web1.example.net")
	f.run(cfg).await(server.EventConfirmed, 1)
}

// pushesNoName makes configurations without an identity, for renewals too.
func (f *fleet) pushesNoName() {
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test",
				Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
					delete(e.Configuration, "identity")
				})}
		}
	})
}

// The network renames the machine, or takes its name away, while the agent runs. The agent renews and keeps the name
// in its certificate. The next agent, perhaps on a copy of the disk, does not.
func TestARunningNodeKeepsItsName(t *testing.T) {
	t.Parallel()
	for later, ends := range map[string]string{
		"db1.example.net": "belongs to web1.example.net, and this node is db1.example.net: use another --ssl-dir " +
			"and --config for this node; or remove ",
		"localhost": "no name yet",
	} {
		t.Run(later, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.pushesNoName()
			var called atomic.Value
			called.Store("web1.example.net")
			clock := newClock()
			cfg := f.node("")
			cfg.Now = clock.now
			cfg.NameMachineBy(func() string { return called.Load().(string) })
			a := f.run(cfg)
			first := a.await(server.EventConfirmed, 1).Serial
			a.await(server.EventConnected, 1)

			called.Store(later)
			clock.advance(life * 3 / 4)
			second := a.await(server.EventConfirmed, 2).Serial
			if got := a.await(server.EventConnected, 2).Serial; got != second || second == first {
				t.Errorf("connected with %s, confirmed %s, after %s", got, second, first)
			}
			if n := len(f.renewals()); n != 1 {
				t.Errorf("%d renewals, want one; log:\n%s", n, f.log.String())
			}
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}

			s, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), ends) {
				t.Errorf("Run of the next agent = %v, want %q", err, ends)
			}
		})
	}
}

// server.conf names a node on a machine with another host name, and is replaced by configurations without an
// identity.
func TestANameInServerConfStays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.pushesNoName()
	clock := newClock()
	cfg := f.node("")
	cfg.Now = clock.now
	cfg.SetMachineName("web1")
	writeFile(t, cfg.ConfFile, "identity = web1.example.net\nprovision = true\n")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	clock.advance(life * 3 / 4)
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	text := readFile(t, cfg.ConfFile)
	if !strings.Contains(text, "\nidentity = web1.example.net\n") || !strings.Contains(text, "generation = new") ||
		strings.Contains(text, "provision =") {
		t.Errorf("the configuration is:\n%s", text)
	}
	f.run(cfg).await(server.EventConnected, 1)
}

// A server.conf with an identity has a mistake. With the host name the node would enroll as another node, and replace
// the file.
func TestTheNameInAnUnusableServerConfCounts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, as, says string }{
		"in another line": {"identity = db1.example.net\nprovision = true\nalive_interval = never\n",
			"db1.example.net", ""},
		"no line at all": {"identity = db1.example.net\n\x00\x00\x00", "db1.example.net", ""},
		"in capitals":    {"identity = DB1.example.net\nalive_interval = never\n", "db1.example.net", ""},
		"in the name":    {"provision = true\nidentity = db_1.example.net\n", "", `"db_1.example.net"`},
		"two names": {"identity = db1.example.net\nidentity = db2.example.net\n", "",
			`"db1.example.net" and "db2.example.net"`},
		"cut short in the name": {"# muster settings, complete only with the line that ends them\nidentity = db",
			"web1.example.net", ""},
		"of a key of somebody's": {"Identity = db1.example.net\nrubbish\n", "web1.example.net", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("")
			cfg.SetMachineName("web1.example.net")
			writeFile(t, cfg.ConfFile, tt.text)
			if tt.as != "" {
				f.run(cfg).await(server.EventConfirmed, 1)
				if got := f.requests()[0].Identity; got != tt.as {
					t.Errorf("enrolled as %s, want %s", got, tt.as)
				}
				return
			}
			s, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = s.Run(ctx)
			for _, want := range []string{cfg.ConfFile, tt.says, "identity"} {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Run = %v, want one line that says %q", err, want)
				}
			}
			if n := len(f.requests()); n > 0 {
				t.Errorf("%d requests, as %s", n, f.requests()[0].Identity)
			}
			if got := readFile(t, cfg.ConfFile); got != tt.text {
				t.Errorf("server.conf is %q now", got)
			}
		})
	}
}
