package server_test

import (
	"net"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// strayNode runs an agent whose configuration names only a broker at this address.
func (f *fleet) strayNode(t *testing.T, address string, limit time.Duration) (server.Config, *agent) {
	t.Helper()
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test",
				Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
					e.Configuration["brokers"] = address
				})}
		}
	})
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = limit
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	return cfg, a
}

// The configuration names brokers that do not exist: the node gets another one over the token's brokers, with its
// certificate, also after a restart.
func TestANodeWithWrongBrokersIsReconfigured(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	cfg, a := f.strayNode(t, dead.Addr().String(), time.Hour)
	a.await(server.EventFailed, 3)
	if n := len(f.renewals()); n > 0 {
		t.Errorf("%d requests before the limit", n)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.RefusedLimit = 100 * time.Millisecond
	a = f.run(cfg) // with a correct configuration
	f.awaitLog("configured brokers never reached", "correct the brokers")
	a.await(server.EventConfirmed, 1)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want the first alone: no token is shown", n)
	}
}

// A person writes such brokers while the broker is away.
func TestANodeWithWrongBrokersOfAPersonIsReconfigured(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	f.stop()
	writeFile(t, cfg.ConfFile, "brokers = 127.0.0.1:1\n")
	a.await(server.EventFailed, 1)
	f.start()
	f.awaitLog("configured brokers never reached", "correct the brokers")
	a.await(server.EventConfirmed, 2)
}
