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

const (
	connzSubject  = "$SYS.REQ.SERVER.PING.CONNZ"
	jszSubject    = "$SYS.REQ.SERVER.PING.JSZ"
	kickSubject   = "$SYS.REQ.SERVER.%s.KICK"
	statszSubject = "$SYS.SERVER.*.STATSZ" // every 10 s from each server

	controlInbox = "_INBOX.muster"

	// systemClient is the name of a connection to [AccountSystem].
	systemClient = "provisioner control"
)

var (
	systemPublish   = [...]string{connzSubject, jszSubject, fmt.Sprintf(kickSubject, "*")}
	systemSubscribe = [...]string{controlInbox + ".>", statszSubject, connectionEvents}
)

const (
	// A server is gone after serverSilence, 3.5 missing status messages.
	serverSilence = 35 * time.Second

	// A query waits answerTimeout for known servers, then answerGap for unknown ones. An answer takes 2 ms.
	answerTimeout = 2 * time.Second
	answerGap     = 100 * time.Millisecond

	// Every server sends connectionsPage entries of 1.1 KB each at once, and drops a client with 64 MiB pending.
	// Entries move up when connections end, so pages overlap.
	connectionsPage = 8 << 10
	pageOverlap     = 64
)

type control struct {
	nc       *nats.Conn
	appeared func() // called when an unknown server appears; may be nil

	page int // connectionsPage, or less in tests

	mu      sync.Mutex
	servers map[string]time.Time // guarded by mu: last sign of life by server id
}

func (c *control) follow(ctx context.Context) error {
	_, err := c.nc.Subscribe(statszSubject, func(m *nats.Msg) {
		c.alive(strings.Split(m.Subject, ".")[2]) // statszSubject has as many tokens
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

func (c *control) alive(id string) {
	c.mu.Lock()
	last, known := c.servers[id]
	c.servers[id] = time.Now()
	c.mu.Unlock()
	if (!known || time.Since(last) > serverSilence) && c.appeared != nil {
		c.appeared()
	}
}

func (c *control) missing(answered map[string]bool) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, last := range c.servers {
		if time.Since(last) > serverSilence {
			delete(c.servers, id)
		} else if !answered[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

type serverReply[T any] struct {
	Server server.ServerInfo `json:"server"`
	Data   *T                `json:"data"`
	Error  *server.ApiError  `json:"error"` // set instead of Data
}

// query passes every reply with data to each. The error names known servers that did not answer.
func query[T any](
	ctx context.Context, c *control, subject string, request any, each func(server.ServerInfo, *T),
) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("query %s: %w", subject, err)
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("query %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, body); err != nil {
		return fmt.Errorf("query %s: %w", subject, err)
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
		var r serverReply[T]
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Server.ID == "" {
			continue
		}
		answered[r.Server.ID] = true
		c.alive(r.Server.ID)
		switch {
		case r.Error != nil:
			errs = append(errs, fmt.Errorf("query %s: server %s refused: %q (%d)",
				subject, r.Server.ID, r.Error.Description, r.Error.Code))
		case r.Data == nil:
			errs = append(errs, fmt.Errorf("query %s: server %s sent no data", subject, r.Server.ID))
		default:
			each(r.Server, r.Data)
		}
	}
	if missing := c.missing(answered); len(missing) > 0 || len(answered) == 0 {
		errs = append(errs, fmt.Errorf("query %s: %d servers answered, these did not: %s",
			subject, len(answered), strings.Join(missing, ", ")))
	}
	return errors.Join(errs...)
}

// nextAnswer waits only answerGap once all known servers have answered.
func (c *control) nextAnswer(ctx context.Context, sub *nats.Subscription, answered map[string]bool) (*nats.Msg, error) {
	if len(answered) > 0 && len(c.missing(answered)) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerGap)
		defer cancel()
	}
	return sub.NextMsgWithContext(ctx)
}

// connections lists connections of a node, or of all if node is empty.
func (c *control) connections(ctx context.Context, node wire.Identity,
	each func(server.ServerInfo, []connection),
) error {
	options := connzOptions(node, c.page)
	for {
		more := false
		err := query(ctx, c, connzSubject, options, func(s server.ServerInfo, r *server.Connz) {
			more = more || options.Offset+len(r.Conns) < r.Total
			each(s, connectionsFrom(r))
		})
		if err != nil || !more {
			return err
		}
		options.Offset += options.Limit - min(pageOverlap, options.Limit/2)
	}
}

// kick closes a connection. It returns no error if the connection has ended.
func (c *control) kick(conn connection) error {
	body, err := json.Marshal(server.KickClientReq{CID: conn.number})
	if err != nil {
		return err
	}
	// The server ignores a request without a reply subject.
	return c.nc.PublishRequest(fmt.Sprintf(kickSubject, conn.server), c.nc.NewInbox(), body)
}
