package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	askAccounts    = "$SYS.REQ.SERVER.PING.ACCOUNTZ"
	orderKick      = "$SYS.REQ.SERVER.%s.KICK"
	heardAlive     = "$SYS.SERVER.*.STATSZ" // every 10 s from each
	heardShutdown  = "$SYS.SERVER.*.SHUTDOWN"

	controlInbox = "_INBOX.muster" // where the answers go
)

// What servers permit us there, by the configuration that they have. They keep the one that
// they were given, so what is not among this today may not be permitted.
var (
	controlSays  = [...]string{askConnections, askJetStream, fmt.Sprintf(orderKick, "*"), askAccounts}
	controlHears = [...]string{controlInbox + ".>", heardAlive, heardShutdown}
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

	// A connection of a node is 1.1 KB of an answer (measured). A server drops us where more
	// than its max_pending of 64 MiB waits for us, which is an answer about 60,000, and nats.go
	// what waits for us beyond as much. So servers, which answer all at once, are asked about firstPage first,
	// 9 MiB each, and where there are more for a page at a time, one server after the other,
	// 36 MiB: each page costs a server as much as all would.
	firstPage = 8 << 10
	page      = 32 << 10

	// pagesTimeout bounds what is asked page by page; chosen, four questions for 100,000.
	pagesTimeout = 30 * time.Second
)

// reported is what a server says of itself.
type reported[T any] struct {
	Server server.ServerInfo `json:"server"`
	Data   *T                `json:"data"`
	Error  *server.ApiError  `json:"error"` // instead of the data
}

// check returns what a server that was asked says instead of an answer: nothing that it has
// can be concluded from that.
func (r *reported[T]) check(subject string) error {
	switch {
	case r.Error != nil:
		return fmt.Errorf("ask %s of server %s: refused: %q (%d)", subject, r.Server.ID, r.Error.Description, r.Error.Code)
	case r.Data == nil:
		return fmt.Errorf("ask %s of server %s: no data in the answer", subject, r.Server.ID)
	}
	return nil
}

// follow learns which servers there are, from what they say and do not say, until the
// subscriptions end that it returns, also with an error.
func (e *External) follow(ctx context.Context, nc *nats.Conn) (heard []*nats.Subscription, err error) {
	for subject, hear := range map[string]nats.MsgHandler{
		heardAlive: func(m *nats.Msg) { e.alive(serverOf(m.Subject)); e.compareClocks(m.Data) },
		heardShutdown: func(m *nats.Msg) {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.servers, serverOf(m.Subject))
		},
	} {
		sub, err := nc.Subscribe(subject, hear)
		if err != nil {
			return heard, fmt.Errorf("subscribe in account %s: %w", AccountSystem, err)
		}
		heard = append(heard, sub)
	}
	ctx, cancel := context.WithTimeout(ctx, e.answerTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return heard, fmt.Errorf("subscribe in account %s: %w", AccountSystem, err)
	}
	return heard, nil
}

// serverOf returns the id in the subject of an event.
func serverOf(subject string) string {
	parts := strings.Split(subject, ".")
	return parts[2] // of a pattern with as many
}

// A sign is the last sign of life of a server.
type sign struct {
	at time.Time

	// unheeded is that it has not answered in time since. A server that hangs is waited for
	// once and not with each question: others would be late by that each time.
	unheeded bool
}

// alive notes that a server lives.
func (e *External) alive(id string) {
	e.mu.Lock()
	last, known := e.servers[id]
	e.servers[id] = sign{at: time.Now()}
	e.mu.Unlock()
	if (!known || time.Since(last.at) > forgetServer) && e.cfg.Appeared != nil {
		e.cfg.Appeared()
	}
}

// known reports whether a server answers us in [AccountSystem]. That of a site does not answer
// the provisioners of the hub, who are asked by it while the site has none.
func (e *External) known(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.servers[id]
	return known
}

// silent returns the servers that are known and not among those that answered, and whether
// one of them is worth waiting for.
func (e *External) silent(answered map[string]bool) (ids []string, wait bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, last := range e.servers {
		if time.Since(last.at) > forgetServer {
			delete(e.servers, id)
		} else if !answered[id] {
			ids, wait = append(ids, id), wait || !last.unheeded
		}
	}
	return ids, wait
}

// giveUp notes that servers have been waited for in vain since then.
func (e *External) giveUp(ids []string, since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if last, known := e.servers[id]; known && last.at.Before(since) {
			e.servers[id] = sign{last.at, true}
		}
	}
}

// checkSync reports [ErrNotSynced] if a server says that it acknowledges before
// it syncs. Servers that do not answer now are not looked at: in a cluster that is
// being restarted there is always one. It asks until some server answers.
func (e *External) checkSync(ctx context.Context, nc *nats.Conn) error {
	for {
		answers, lax, err := e.notSynced(ctx, nc)
		switch {
		case len(lax) > 0:
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

// notSynced returns which servers say that they acknowledge before they sync, of so many that
// have answered. The error is that of gather.
func (e *External) notSynced(ctx context.Context, nc *nats.Conn) (answers int, lax []string, err error) {
	err = gather(ctx, e, nc, askJetStream, server.JSzOptions{Config: true}, func(_ string, r reported[server.JSInfo]) {
		answers++
		if !r.Data.Disabled && !r.Data.Config.SyncAlways {
			lax = append(lax, r.Server.Name)
		}
	})
	slices.Sort(lax)
	return answers, lax, err
}

// gather asks all servers and calls each with every answer that has data. The error says
// which servers are known to live and did not answer, and which refused to.
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
	began := time.Now()
	waiting, cancel := context.WithTimeout(ctx, e.answerTimeout)
	defer cancel()
	answered := make(map[string]bool)
	var refused []error
	for {
		wait, stop := waiting, context.CancelFunc(func() {})
		if _, worth := e.silent(answered); len(answered) > 0 && !worth {
			wait, stop = context.WithTimeout(waiting, quiet)
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
		if err := r.check(subject); err != nil {
			refused = append(refused, err)
			continue
		}
		each(r.Server.ID, r)
	}
	missing, _ := e.silent(answered)
	if waiting.Err() != nil && ctx.Err() == nil {
		e.giveUp(missing, began)
	}
	if len(missing) > 0 || len(answered) == 0 {
		refused = append(refused, fmt.Errorf("ask %s: %d servers answered, none came from %s", subject, len(answered), strings.Join(missing, ", ")))
	}
	return errors.Join(refused...)
}

// connection is one of a node's, on some server. It keeps no more of what the server has
// said than is needed, since a look may have those of a whole fleet in hand.
type connection struct {
	server      string
	number      uint64
	certificate string    // SHA-256, hex; empty if the server knows none
	start       time.Time // by the server's clock
}

// kick drops a connection. One that has gone by itself is no error.
func (c *connection) kick(nc *nats.Conn) error {
	body, err := json.Marshal(server.KickClientReq{CID: c.number})
	if err != nil {
		return err
	}
	// A server does not obey who does not ask for an answer. Nobody listens for
	// it: that the connection has gone by then is the usual one.
	return nc.PublishRequest(fmt.Sprintf(orderKick, c.server), nc.NewInbox(), body)
}

// connections asks all servers for the connections of these nodes, of all nodes if ids is
// nil, and calls each with those on one server, by node, as soon as that has answered: one
// that is silent holds up nothing on the others. It is called once at a time, and more often for a server with
// many. For more nodes than one, servers list the whole fleet. The
// error says which servers are known to live and did not answer, refused to, or did not to the end.
func (e *External) connections(ctx context.Context, nc *nats.Conn, ids []wire.Identity, each func(held map[wire.Identity][]connection)) error {
	wanted := make(map[wire.Identity]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	options := server.ConnzOptions{Account: AccountFleet, Username: true, Limit: e.firstPage}
	if len(ids) == 1 {
		options.User = string(ids[0])
	}
	var calling sync.Mutex // each
	return e.list(ctx, nc, options, func(id string, conns []*server.ConnInfo) {
		held := make(map[wire.Identity][]connection)
		for _, c := range conns {
			if node := wire.Identity(c.AuthorizedUser); c.Account == AccountFleet && (ids == nil || wanted[node]) {
				held[node] = append(held[node], connectionOf(id, c))
			}
		}
		if len(held) > 0 {
			calling.Lock()
			defer calling.Unlock()
			each(held)
		}
	})
}

// list asks all servers for connections, of which options has how many of each first, and calls take
// with those on one server as soon as it has answered, and more often for a server with many. It may be
// called several times at once. The error is as that of connections.
func (e *External) list(ctx context.Context, nc *nats.Conn, options server.ConnzOptions, take func(id string, conns []*server.ConnInfo)) error {
	paging, cancel := context.WithTimeout(ctx, e.pagesTimeout)
	defer cancel()
	var more sync.WaitGroup
	var oneByOne, failing sync.Mutex
	var failed []error // guarded by failing
	err := gather(ctx, e, nc, askConnections, options, func(id string, r reported[server.Connz]) {
		conns := r.Data.Conns
		take(id, conns)
		if len(conns) < options.Limit || len(conns) >= r.Data.Total { // or it is all that there is
			return
		}
		seen, last, name := len(conns), conns[len(conns)-1].Cid, r.Server.Name
		more.Go(func() {
			oneByOne.Lock()
			defer oneByOne.Unlock()
			if err := e.nextPages(paging, nc, id, name, options, seen, last, take); err != nil {
				failing.Lock()
				defer failing.Unlock()
				failed = append(failed, err)
			}
		})
	})
	more.Wait()
	return errors.Join(append(failed, err)...)
}

// connectionOf is what a server says of one of its connections.
func connectionOf(id string, c *server.ConnInfo) connection {
	held := connection{server: id, number: c.Cid, start: c.Start}
	if len(c.TLSPeerCerts) > 0 {
		held.certificate = c.TLSPeerCerts[0].CertSha256
	}
	return held
}

// nextPages asks the server of a name for what comes after the connection of number last, of which it
// has listed as many as were seen, and calls take with each page. A server lists by
// number, which grow with each that connects; and a page begins at a place in the list as it is
// by then. Whoever has gone since has let those behind him move up, some of them to before
// the page. So a page counts only if it begins no later than where the one before has
// ended; else it is asked for from further in front.
func (e *External) nextPages(ctx context.Context, nc *nats.Conn, id, name string, options server.ConnzOptions, seen int, last uint64, take func(string, []*server.ConnInfo)) error {
	options.Limit = e.page
	options.Offset = seen - 1
	for {
		r, err := e.onePage(ctx, nc, id, name, options)
		if err != nil {
			return err
		}
		conns := r.Conns
		if options.Offset > 0 && (len(conns) == 0 || conns[0].Cid > last) {
			options.Offset = max(0, min(options.Offset, r.Total)-options.Limit)
			continue
		}
		known := 0
		for known < len(conns) && conns[known].Cid <= last {
			known++
		}
		take(id, conns[known:])
		if options.Offset+len(conns) >= r.Total || len(conns) < options.Limit {
			return nil
		}
		last = max(last, conns[len(conns)-1].Cid)
		options.Offset += len(conns) - 1
	}
}

// onePage asks one server for a page of its connections. It asks as all are asked, in a way
// that only the one of that name answers: servers permit us no question to one alone.
func (e *External) onePage(ctx context.Context, nc *nats.Conn, id, name string, options server.ConnzOptions) (*server.Connz, error) {
	body, err := json.Marshal(server.ConnzEventOptions{ConnzOptions: options, EventFilterOptions: server.EventFilterOptions{Name: name, ExactMatch: true}})
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", askConnections, err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.answerTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, askConnections, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s of server %s from place %d: %w", askConnections, id, options.Offset, err)
	}
	var r reported[server.Connz]
	switch err := json.Unmarshal(m.Data, &r); {
	case err != nil:
		return nil, fmt.Errorf("ask %s of server %s: %w", askConnections, id, err)
	case r.Server.ID != id:
		return nil, fmt.Errorf("ask %s of server %s: another one, %s, has its name %q: give each its own", askConnections, id, r.Server.ID, name)
	}
	if err := r.check(askConnections); err != nil {
		return nil, err
	}
	e.alive(id)
	return r.Data, nil
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
// answers, as soon as it does: revoke first, then disconnect. The error says which servers are alive
// and did not answer, or answered that they will not say; their connections stay. A connection that is being admitted
// at this moment, by this provisioner or another, is not found: look again with
// [External.Recheck] after [AdmissionInFlight]. A node without a connection is
// no error.
func (e *External) Disconnect(ids ...wire.Identity) error {
	nc, err := e.running()
	if err != nil || len(ids) == 0 {
		return err
	}
	var errs []error
	err = e.connections(context.Background(), nc, ids, func(held map[wire.Identity][]connection) { // which bounds itself
		for _, list := range held {
			for _, c := range list {
				errs = append(errs, c.kick(nc))
			}
		}
	})
	return errors.Join(append(errs, err, nc.FlushTimeout(e.answerTimeout))...)
}

// AdmissionInFlight is how long after a decision of some gate the connection may
// appear among those of a server that is not in this process: as long as a
// question is answered, and a second for the way.
const AdmissionInFlight = admitTimeout + time.Second

// Recheck drops every live connection of these nodes that holds a certificate
// which is not admitted any more, as [Broker.Recheck] does, on every server. The
// call is to be repeated for the ids that are returned with an error: a server
// that is known to live did not answer or refused to, a node's certificates could not be
// learned, or a server may not have been told.
func (e *External) Recheck(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error) {
	if e.gate.cfg.LiveNode == nil {
		return nil, errors.New("recheck: the gate knows no list of live certificates")
	}
	nc, err := e.running()
	if err != nil || len(ids) == 0 {
		return ids, err
	}
	again, whole, err := e.recheck(ctx, nc, ids)
	if !whole {
		again = ids
	}
	return again, err
}

// RecheckAll is Recheck for every node that has a connection. It reads the record of
// each: who was revoked, or has renewed, while nobody could look is found by nothing else.
// Unless every server that is known to live has answered, which whole says, the call is to
// be repeated; else Recheck for the ids that are returned is enough.
func (e *External) RecheckAll(ctx context.Context) (again []wire.Identity, whole bool, err error) {
	if e.gate.cfg.LiveNode == nil {
		return nil, false, errors.New("recheck: the gate knows no list of live certificates")
	}
	nc, err := e.running()
	if err != nil {
		return nil, false, err
	}
	return e.recheck(ctx, nc, nil)
}

// recheck does the work of RecheckAll, for these nodes alone unless ids is nil.
func (e *External) recheck(ctx context.Context, nc *nats.Conn, ids []wire.Identity) (again []wire.Identity, whole bool, err error) {
	// The connections are listed before the records are read; see Broker.Recheck. That takes
	// as long as the way to the store for each node, so answers are not kept waiting by it.
	var looks sync.WaitGroup
	var left unsettled
	err = e.connections(ctx, nc, ids, func(held map[wire.Identity][]connection) {
		looks.Go(func() { e.dropDead(ctx, nc, held, &left) })
	})
	looks.Wait()
	return left.ids, err == nil, errors.Join(err, left.err())
}

// dropDead drops those of the connections, on one server, whose certificates are not
// admitted any more.
func (e *External) dropDead(ctx context.Context, nc *nats.Conn, held map[wire.Identity][]connection, left *unsettled) {
	var told []wire.Identity
	for id, list := range held {
		live, err := e.gate.cfg.LiveNode(ctx, id)
		if err != nil {
			left.add(err, id)
			continue
		}
		for _, c := range list {
			if c.certificate != "" && slices.Contains(live, c.certificate) {
				continue
			}
			told = append(told, id)
			if err := c.kick(nc); err != nil {
				left.add(err, id)
			}
		}
	}
	if len(told) == 0 {
		return
	}
	if err := nc.FlushTimeout(e.answerTimeout); err != nil { // what was sent may not have gone
		left.add(err, told...)
	}
}
