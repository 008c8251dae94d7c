package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/fleet"
)

// connectionEvents are CONNECT and DISCONNECT.
const connectionEvents = "$SYS.ACCOUNT." + AccountFleet + ".*"

const (
	// listInterval bounds how long a lost event is not noticed. To list 10,000 connections takes 0.2 s of a core.
	listInterval = time.Minute

	// listRetry is also how long it takes to notice that a silent server has gone, apart from serverSilence.
	listRetry = 10 * time.Second

	// listsFailed is for how long no list may be complete before connections count as unknown.
	listsFailed = 3 * listInterval
)

// Connections is told of the connections of [AccountFleet]. Calls are not concurrent. [fleet.Index] implements it.
type Connections interface {
	Changed(b fleet.Broker, c fleet.Connection)
	Listed(open fleet.Open, now time.Time)
	Settled(at time.Time, more bool)
}

// Follow tells to of all connections until ctx is done, and returns nil then.
func (b *Broker) Follow(ctx context.Context, to Connections) error {
	nc, err := b.Connect(systemClient)
	if err != nil {
		return err
	}
	defer nc.Close()
	c := &control{nc: nc, page: connectionsPage, servers: make(map[string]time.Time)}
	return (&follower{control: c, to: to}).run(ctx)
}

// Follow is like [Broker.Follow]. Brokers at sites are not asked.
func (e *External) Follow(ctx context.Context, to Connections) error {
	c, err := e.running()
	if err != nil {
		return err
	}
	return (&follower{control: c, to: to, more: true}).run(ctx)
}

type follower struct {
	*control

	to   Connections
	more bool

	mu     sync.Mutex // held for calls of to
	during []change   // since the begin of a list; nil otherwise
}

type change struct {
	broker     fleet.Broker
	connection fleet.Connection
}

// An event is a part of [server.ConnectEventMsg] and [server.DisconnectEventMsg].
type event struct {
	Server struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"server"`
	Client struct {
		Start time.Time `json:"start"`
		Stop  time.Time `json:"stop"`
		ID    uint64    `json:"id"`
		User  string    `json:"user"`
	} `json:"client"`
}

func (f *follower) run(ctx context.Context) error {
	sub, err := f.nc.Subscribe(connectionEvents, f.take)
	if err != nil {
		return fmt.Errorf("subscribe in account %s: %w", AccountSystem, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	settled := time.Now()
	for wait := time.Duration(0); span.Sleep(ctx, wait); {
		wait = listInterval
		switch began, err := time.Now(), f.list(ctx); {
		case err == nil:
			settled = began
			f.to.Settled(settled, f.more)
			continue
		case time.Since(settled) > listsFailed:
			f.to.Settled(time.Time{}, f.more)
		}
		wait = listRetry
	}
	return nil
}

func (f *follower) take(m *nats.Msg) {
	var e event
	if err := json.Unmarshal(m.Data, &e); err != nil || e.Client.User == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, c := fleet.Broker(e.Server), fleet.Connection{
		Node: wire.Identity(e.Client.User), Number: e.Client.ID, Since: e.Client.Start, Ended: e.Client.Stop,
	}
	if f.during != nil {
		f.during = append(f.during, change{b, c})
	}
	f.to.Changed(b, c)
}

// list reads all connections. What has changed in the meantime is newer than the answers.
func (f *follower) list(ctx context.Context) error {
	f.mu.Lock()
	f.during = []change{}
	f.mu.Unlock()
	all := make(fleet.Open)
	err := f.connections(ctx, "", func(s server.ServerInfo, list []connection) {
		for _, c := range list {
			all.Set(fleet.Broker{ID: s.ID, Name: s.Name},
				fleet.Connection{Node: c.node, Number: c.number, Since: c.since})
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	during := f.during
	f.during = nil
	if err != nil {
		return err
	}
	for _, c := range during {
		all.Set(c.broker, c.connection)
	}
	f.to.Listed(all, time.Now())
	return nil
}
