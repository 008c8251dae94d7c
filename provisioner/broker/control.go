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
	orderKick      = "$SYS.REQ.SERVER.%s.KICK"
	heardAlive     = "$SYS.SERVER.*.STATSZ" // every 10 s from each

	controlInbox = "_INBOX.muster" // where the answers go
)

// What servers permit us there, by the configuration that they have.
var (
	controlSays  = [...]string{askConnections, askJetStream, fmt.Sprintf(orderKick, "*")}
	controlHears = [...]string{controlInbox + ".>", heardAlive}
)

const (
	// forgetServer is after how long without a sign of life a server need not
	// answer any more; three and a half of its signs.
	forgetServer = 35 * time.Second

	// answerTimeout bounds the wait for servers that are known and silent, and quiet is how long after an answer
	// another one may come from a server that is not known yet. An answer takes 2 ms.
	answerTimeout = 2 * time.Second
	quiet         = 100 * time.Millisecond

	// connectionsPage is how many connections servers are asked for at once. Each is 1.1 KB, all servers answer at
	// once, and one drops us where more than 64 MiB waits for us. pageOverlap is how many of the page before are asked
	// for again: those that end meanwhile let the ones behind them move up.
	connectionsPage = 8 << 10
	pageOverlap     = 64
)

// control is a connection to the servers' own account: it knows which servers there are, and asks all of them.
type control struct {
	nc       *nats.Conn
	appeared func() // called when a server is heard of that was not known; may be nil

	page int // see connectionsPage; tests have smaller ones

	mu      sync.Mutex
	servers map[string]time.Time // guarded by mu: when a server was last heard of, by id
}

// follow learns which servers there are, from their signs of life.
func (c *control) follow(ctx context.Context) error {
	_, err := c.nc.Subscribe(heardAlive, func(m *nats.Msg) {
		c.alive(strings.Split(m.Subject, ".")[2]) // of a pattern with as many
	})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		err = c.nc.FlushWithContext(ctx)
	}
	if err != nil {
		return fmt.Errorf("subscribe in account %s: %w", AccountSystem, err)
	}
	return nil
}

// alive notes that a server lives.
func (c *control) alive(id string) {
	c.mu.Lock()
	last, known := c.servers[id]
	c.servers[id] = time.Now()
	c.mu.Unlock()
	if (!known || time.Since(last) > forgetServer) && c.appeared != nil {
		c.appeared()
	}
}

// missing returns the servers that are known to live and not among those that answered.
func (c *control) missing(answered map[string]bool) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, last := range c.servers {
		if time.Since(last) > forgetServer {
			delete(c.servers, id)
		} else if !answered[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// reported is what a server says of itself.
type reported[T any] struct {
	Server server.ServerInfo `json:"server"`
	Data   *T                `json:"data"`
	Error  *server.ApiError  `json:"error"` // instead of the data
}

// ask asks all servers and calls each with every answer that has data. The error says which servers are known to live
// and did not answer, and which refused to.
func ask[T any](ctx context.Context, c *control, subject string, request any, each func(server.ServerInfo, *T)) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	waiting, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answered := make(map[string]bool)
	var errs []error
	for {
		m, err := c.nextAnswer(waiting, sub, answered)
		if err != nil {
			break
		}
		var r reported[T]
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Server.ID == "" {
			continue
		}
		answered[r.Server.ID] = true
		c.alive(r.Server.ID)
		switch {
		case r.Error != nil:
			errs = append(errs, fmt.Errorf("ask %s of server %s: refused: %q (%d)", subject, r.Server.ID, r.Error.Description, r.Error.Code))
		case r.Data == nil:
			errs = append(errs, fmt.Errorf("ask %s of server %s: no data in the answer", subject, r.Server.ID))
		default:
			each(r.Server, r.Data)
		}
	}
	if missing := c.missing(answered); len(missing) > 0 || len(answered) == 0 {
		errs = append(errs, fmt.Errorf("ask %s: %d servers answered, none came from %s", subject, len(answered), strings.Join(missing, ", ")))
	}
	return errors.Join(errs...)
}

// nextAnswer waits for an answer: for as long as ctx while a server is missing, else for one of a server that is not
// known yet.
func (c *control) nextAnswer(ctx context.Context, sub *nats.Subscription, answered map[string]bool) (*nats.Msg, error) {
	if len(answered) > 0 && len(c.missing(answered)) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return sub.NextMsgWithContext(ctx)
}

// connections asks all servers for the connections of a node, or of all nodes, and calls each with those on one server
// as soon as that has answered.
func (c *control) connections(ctx context.Context, node wire.Identity, each func([]connection)) error {
	options := connectionsOf(node, c.page)
	for {
		more := false
		err := ask(ctx, c, askConnections, options, func(_ server.ServerInfo, r *server.Connz) {
			more = more || options.Offset+len(r.Conns) < r.Total
			each(connectionsIn(r))
		})
		if err != nil || !more {
			return err
		}
		options.Offset += options.Limit - min(pageOverlap, options.Limit/2)
	}
}

// kick drops a connection. One that has gone by itself is no error.
func (c *control) kick(conn connection) error {
	body, err := json.Marshal(server.KickClientReq{CID: conn.number})
	if err != nil {
		return err
	}
	// A server obeys only an order that asks for an answer. The answer is not read: that the connection has gone by
	// then is the usual one.
	return c.nc.PublishRequest(fmt.Sprintf(orderKick, conn.server), c.nc.NewInbox(), body)
}
