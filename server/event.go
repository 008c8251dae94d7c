package server

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/server/link"
)

// An EventKind is the kind of an [Event].
type EventKind string

// The kinds of events, and the fields that they set.
const (
	EventMode      EventKind = "mode"      // Mode was entered
	EventRefused   EventKind = "refused"   // attempt refused: Code
	EventFailed    EventKind = "failed"    // attempt or connection failed: Err
	EventApplied   EventKind = "applied"   // new set in force: Serial
	EventConfirmed EventKind = "confirmed" // confirmation on record: Serial
	EventConnected EventKind = "connected" // connected to the fleet by mutual TLS: Serial
)

// An Event reports a change to the program that runs the agent. The fleet gets CloudEvents.
type Event struct {
	Kind   EventKind
	Mode   Mode
	Code   wire.Code
	Err    error
	Serial string // of the certificate, lower-case hex
}

func (a *agent) observe(e Event) {
	if a.cfg.Observe != nil {
		a.cfg.Observe(e)
	}
}

const (
	lifecycleStartup     = "startup"
	lifecycleAlive       = "alive"
	lifecycleProvisioned = "provisioned"
	lifecycleShutdown    = "shutdown"
)

func (a *agent) lifecycleEvent(typ string, v *inspection, address net.IP) ([]byte, error) {
	at, err := address.MarshalText() // empty if unknown
	if err != nil {
		return nil, err
	}
	source := wire.RoleURI(v.creds.TrustDomain, wire.RoleNode, string(v.identity)).String()
	return json.Marshal(wire.NewCloudEvent(source, "io.muster.server."+typ, string(v.identity),
		a.cfg.Now().Truncate(time.Second), wire.Lifecycle{
			Identity: v.identity,
			Version:  a.cfg.Version,
			Boot:     a.boot,
			Address:  string(at),
			Mode:     v.mode.String(),
			Serial:   v.creds.Serial,
			Expires:  v.creds.Leaf().NotAfter.UTC().Format(time.RFC3339),
			Fault:    a.faults.String(),
		}))
}

// A lost event is not repeated: the next alive event has the same data.
func (a *agent) publishEvent(ctx context.Context, conn *link.Conn, typ string, v *inspection) {
	address, _ := conn.GetClientIP()
	b, err := a.lifecycleEvent(typ, v, address)
	if err == nil {
		m := nats.NewMsg(wire.EventSubject(v.identity, typ))
		m.Header.Set("Content-Type", "application/cloudevents+json")
		m.Data = b
		err = conn.PublishMsg(m)
	}
	if err != nil {
		a.cfg.Log.WarnContext(ctx, "event not published", "node", v.identity, "subject", typ, "err", err)
	}
}
