package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// What servers are asked in [AccountSystem], and what they say there by
// themselves.
const (
	askConnections = "$SYS.REQ.SERVER.PING.CONNZ"
	askJetStream   = "$SYS.REQ.SERVER.PING.JSZ"
	orderKick      = "$SYS.REQ.SERVER.%s.KICK"
	heardAlive     = "$SYS.SERVER.*.STATSZ" // every 10 s from each
	heardShutdown  = "$SYS.SERVER.*.SHUTDOWN"

	controlInbox = "_INBOX.muster" // where the answers go
)

const (
	// forgetServer is after how long without a sign of life a server need not
	// answer any more; three and a half of its signs.
	forgetServer = 35 * time.Second

	// answerTimeout bounds the wait for servers that are known and silent, and
	// quiet is how long after an answer another one may come from a server that
	// is not known yet. Chosen: an answer takes 2 ms.
	answerTimeout = 2 * time.Second
	quiet         = 100 * time.Millisecond

	// allConnections is a limit that no server comes near.
	allConnections = 1 << 20
)

// reported is what a server says of itself.
type reported[T any] struct {
	Server server.ServerInfo `json:"server"`
	Data   T                 `json:"data"`
}

// follow learns which servers there are, from what they say and do not say.
func (e *External) follow(nc *nats.Conn) error {
	_, err := nc.Subscribe(heardAlive, func(m *nats.Msg) { e.alive(serverOf(m.Subject)) })
	if err == nil {
		_, err = nc.Subscribe(heardShutdown, func(m *nats.Msg) {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.servers, serverOf(m.Subject))
		})
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return fmt.Errorf("subscribe in account %s: %w", AccountSystem, err)
	}
	return nil
}

// serverOf returns the id in the subject of an event.
func serverOf(subject string) string {
	parts := strings.Split(subject, ".")
	return parts[2] // of a pattern with as many
}

// alive notes that a server lives.
func (e *External) alive(id string) {
	e.mu.Lock()
	last, known := e.servers[id]
	e.servers[id] = time.Now()
	e.mu.Unlock()
	if (!known || time.Since(last) > forgetServer) && e.cfg.Appeared != nil {
		e.cfg.Appeared()
	}
}

// silent returns the servers that are known and not among those that answered.
func (e *External) silent(answered map[string]bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id, last := range e.servers {
		if time.Since(last) > forgetServer {
			delete(e.servers, id)
		} else if !answered[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkSync reports [ErrNotSynced] if a server says that it acknowledges before
// it syncs. Servers that do not answer now are not looked at: in a cluster that is
// being restarted there is always one. It asks until some server answers.
func (e *External) checkSync(ctx context.Context, nc *nats.Conn) error {
	for {
		answers, lax := 0, []string(nil)
		err := gather(ctx, e, nc, askJetStream, server.JSzOptions{Config: true}, func(_ string, r reported[server.JSInfo]) {
			answers++
			if !r.Data.Disabled && !r.Data.Config.SyncAlways {
				lax = append(lax, r.Server.Name)
			}
		})
		switch {
		case len(lax) > 0:
			slices.Sort(lax)
			return fmt.Errorf("%s: %w", strings.Join(lax, ", "), ErrNotSynced)
		case answers > 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(quiet):
		}
	}
}

// gather asks all servers and calls each with every answer. The error says
// which servers are known to live and did not answer.
func gather[T any](ctx context.Context, e *External, nc *nats.Conn, subject string, request any, each func(id string, r reported[T])) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, body); err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answered := make(map[string]bool)
	for {
		wait, stop := ctx, context.CancelFunc(func() {})
		if len(answered) > 0 && len(e.silent(answered)) == 0 {
			wait, stop = context.WithTimeout(ctx, quiet)
		}
		m, err := sub.NextMsgWithContext(wait)
		stop()
		if err != nil {
			break
		}
		var r reported[T]
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Server.ID == "" {
			continue
		}
		answered[r.Server.ID] = true
		e.alive(r.Server.ID)
		each(r.Server.ID, r)
	}
	if missing := e.silent(answered); len(missing) > 0 || len(answered) == 0 {
		return fmt.Errorf("ask %s: %d servers answered, none came from %s", subject, len(answered), strings.Join(missing, ", "))
	}
	return nil
}

// connection is one of a node's, on some server.
type connection struct {
	server string
	*server.ConnInfo
}

// kick drops a connection. One that has gone by itself is no error.
func (c *connection) kick(nc *nats.Conn) error {
	body, err := json.Marshal(server.KickClientReq{CID: c.Cid})
	if err != nil {
		return err
	}
	// A server does not obey who does not ask for an answer. Nobody listens for
	// it: that the connection has gone by then is the usual one.
	return nc.PublishRequest(fmt.Sprintf(orderKick, c.server), nc.NewInbox(), body)
}

// connections returns the connections of these nodes on all servers, by node; of all
// nodes that have any if ids is nil.
// For more nodes than one, servers list the whole fleet: about 1 KB each.
// What is returned beside an error is what the servers said that did answer.
func (e *External) connections(ctx context.Context, nc *nats.Conn, ids []wire.Identity) (map[wire.Identity][]connection, error) {
	held := make(map[wire.Identity][]connection, len(ids))
	for _, id := range ids {
		held[id] = nil
	}
	take := func(id string, r reported[server.Connz]) {
		for _, c := range r.Data.Conns {
			if list, ok := held[wire.Identity(c.AuthorizedUser)]; (ok || ids == nil) && c.Account == AccountFleet {
				held[wire.Identity(c.AuthorizedUser)] = append(list, connection{id, c})
			}
		}
	}
	options := server.ConnzOptions{Account: AccountFleet, Username: true, Limit: allConnections}
	if len(ids) == 1 {
		options.User = string(ids[0])
	}
	return held, gather(ctx, e, nc, askConnections, options, take)
}

// running returns the connection to the servers' own account, or [ErrNotRunning].
func (e *External) running() (*nats.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control == nil {
		return nil, ErrNotRunning
	}
	return e.control, nil
}

// Disconnect drops every live connection of these nodes on every server that
// answers: revoke first, then disconnect. The error says which servers are alive
// and did not answer; their connections stay. A connection that is being admitted
// at this moment, by this provisioner or another, is not found: look again with
// [External.Recheck] after [AdmissionInFlight]. A node without a connection is
// no error.
func (e *External) Disconnect(ids ...wire.Identity) error {
	nc, err := e.running()
	if err != nil || len(ids) == 0 {
		return err
	}
	held, err := e.connections(context.Background(), nc, ids) // bounded by gather
	errs := []error{err}
	for _, list := range held {
		for _, c := range list {
			errs = append(errs, c.kick(nc))
		}
	}
	return errors.Join(append(errs, nc.FlushTimeout(answerTimeout))...)
}

// AdmissionInFlight is how long after a decision of some gate the connection may
// appear among those of a server that is not in this process: as long as a
// question is answered, and a second for the way.
const AdmissionInFlight = admitTimeout + time.Second

// Recheck drops every live connection of these nodes that holds a certificate
// which is not admitted any more, as [Broker.Recheck] does, on every server. The
// call is to be repeated for the ids that are returned with an error: a server
// that is known to live did not answer, a node's certificates could not be
// learned, or a server may not have been told.
func (e *External) Recheck(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error) {
	if e.gate.cfg.LiveNode == nil {
		return nil, errors.New("recheck: the gate knows no list of live certificates")
	}
	nc, err := e.running()
	if err != nil || len(ids) == 0 {
		return ids, err
	}
	// The connections are listed before the records are read; see Broker.Recheck.
	held, err := e.connections(ctx, nc, ids)
	if err != nil {
		again = ids
	}
	return e.recheck(ctx, nc, held, again, err)
}

// RecheckAll is Recheck for every node that has a connection. It reads the record of
// each: who was revoked, or has renewed, while nobody could look is found by nothing else.
func (e *External) RecheckAll(ctx context.Context) error {
	if e.gate.cfg.LiveNode == nil {
		return errors.New("recheck: the gate knows no list of live certificates")
	}
	nc, err := e.running()
	if err != nil {
		return err
	}
	held, err := e.connections(ctx, nc, nil)
	_, err = e.recheck(ctx, nc, held, nil, err)
	return err
}

// recheck does the work of Recheck on connections that were listed, with an error or
// not.
func (e *External) recheck(ctx context.Context, nc *nats.Conn, held map[wire.Identity][]connection, again []wire.Identity, err error) ([]wire.Identity, error) {
	errs := []error{err}
	for id, list := range held {
		if len(list) == 0 {
			continue
		}
		live, err := e.gate.cfg.LiveNode(ctx, id)
		if err != nil {
			again, errs = append(again, id), append(errs, fmt.Errorf("recheck %q: %w", id, err))
			continue
		}
		for _, c := range list {
			if len(c.TLSPeerCerts) == 0 || !slices.Contains(live, c.TLSPeerCerts[0].CertSha256) {
				if err := c.kick(nc); err != nil {
					again, errs = append(again, id), append(errs, err)
				}
			}
		}
	}
	if err := nc.FlushTimeout(answerTimeout); err != nil { // what was sent may not have gone
		again, errs = slices.AppendSeq(again, maps.Keys(held)), append(errs, err)
	}
	return again, errors.Join(errs...)
}
