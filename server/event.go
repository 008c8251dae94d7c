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

// An EventKind says what an [Event] is about.
type EventKind string

// What [Config].Observe is told.
const (
	EventMode       EventKind = "mode"       // Mode was entered
	EventRefused    EventKind = "refused"    // an attempt was refused: Code
	EventFailed     EventKind = "failed"     // an attempt or connection failed otherwise: Err
	EventApplied    EventKind = "applied"    // a new set is in force: Serial, Elapsed
	EventConfirmed  EventKind = "confirmed"  // and the provisioner knows: Serial, Elapsed
	EventConnected  EventKind = "connected"  // connected to the fleet by mutual TLS: Serial, Broker
	EventRegistered EventKind = "registered" // registration data was published
)

// An Event is something that happened to the agent, for a program that runs
// it. What a fleet is told of a node are CloudEvents; see the protocol.
type Event struct {
	Kind   EventKind
	Mode   Mode
	Code   wire.Code
	Err    error
	Serial string // of the certificate, lower-case hex
	Broker string // URL

	// Elapsed is the time since the agent began to enroll or renew; 0 if it has not
	// since it was started, or for events that have nothing to do with that.
	Elapsed time.Duration
}

func (a *agent) observe(e Event) {
	if a.cfg.Observe != nil {
		a.cfg.Observe(e)
	}
}

// Types of lifecycle events, which are also the last part of their subject.
const (
	lifecycleStartup     = "startup"
	lifecycleAlive       = "alive"
	lifecycleProvisioned = "provisioned"
	lifecycleShutdown    = "shutdown"
)

// cloudEvent is a lifecycle event: CloudEvents 1.0 in structured mode.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"` // the node's SPIFFE ID
	Type            string    `json:"type"`   // io.muster.server.<type>
	Subject         string    `json:"subject"`
	Time            string    `json:"time"` // RFC 3339, by the node's clock
	DataContentType string    `json:"datacontenttype"`
	Data            lifecycle `json:"data"`
}

// lifecycle is what a lifecycle event says.
type lifecycle struct {
	Identity string `json:"identity"`
	Version  string `json:"version"`           // of the agent
	Boot     string `json:"boot"`              // differs after each start of the agent
	Address  net.IP `json:"address,omitempty"` // of the node, as its broker sees it
	Mode     string `json:"mode"`
	Serial   string `json:"serial"`  // of the certificate
	Expires  string `json:"expires"` // when that ends, RFC 3339
}

// lifecycleEvent returns a lifecycle event of a node in normal mode. A nil address is not known.
func (a *agent) lifecycleEvent(typ string, v *view, address net.IP) ([]byte, error) {
	return json.Marshal(cloudEvent{
		SpecVersion:     "1.0",
		ID:              wire.NewID(),
		Source:          wire.RoleURI(v.creds.TrustDomain, wire.RoleNode, string(v.identity)).String(),
		Type:            "io.muster.server." + typ,
		Subject:         string(v.identity),
		Time:            a.cfg.Now().UTC().Truncate(time.Second).Format(time.RFC3339),
		DataContentType: "application/json",
		Data: lifecycle{
			Identity: string(v.identity),
			Version:  a.cfg.Version,
			Boot:     a.boot,
			Address:  address,
			Mode:     v.mode.String(),
			Serial:   v.creds.Serial,
			Expires:  v.creds.Leaf().NotAfter.UTC().Format(time.RFC3339),
		},
	})
}

// publishEvent publishes a lifecycle event. An event that is lost with its
// connection is lost: the next alive event says the same.
func (a *agent) publishEvent(ctx context.Context, conn *link.Conn, typ string, v *view) {
	address, _ := conn.GetClientIP() // an old broker does not tell
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
