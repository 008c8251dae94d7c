package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"muster/internal/seal"
)

// unreadFor is how long a question counts that could not be read: nodes may ask seldom.
const unreadFor = 10 * time.Minute

// ErrMisconfigured means that servers do not do what they do as [ServerConfig.Text]
// configures them.
var ErrMisconfigured = errors.New("the servers are not configured as `muster broker config` prints it")

// ErrNotSynced means that a broker acknowledges before it has synced.
var ErrNotSynced = errors.New("broker acknowledges writes that are not on disk: set jetstream.sync_interval to always, as `muster broker config` does, and restart it")

// orderNoServer is an order to no server: the id of one is a public key.
var orderNoServer = fmt.Sprintf(orderKick, "none")

// Unread returns why a question of a server about a connection could not be read, nil if none failed in the last ten
// minutes.
func (e *External) Unread() error {
	if last := e.callout.unread.Load(); last != nil && time.Since(last.at) < unreadFor {
		return fmt.Errorf("a question about a connection was not answered: %w", last.err)
	}
	return nil
}

// checkServer reports [ErrMisconfigured] if the server that we are connected to does not permit what it takes to drop
// connections, or does not take messages as large as replies may be. It tries without effect: questions ask for no
// answer, and the server that gets an order does not exist.
func (c *control) checkServer(ctx context.Context) error {
	if limit := c.nc.MaxPayload(); limit < int64(seal.MaxReplyBytes) {
		return fmt.Errorf("%w: max_payload is %d, and replies to nodes have up to %d bytes", ErrMisconfigured, limit, seal.MaxReplyBytes)
	}
	inbox, err := c.nc.SubscribeSync(controlInbox + ".>")
	if err != nil {
		return err
	}
	defer func() { _ = inbox.Unsubscribe() }()
	for _, subject := range []string{askConnections, askJetStream, orderNoServer} {
		if err := c.nc.Publish(subject, nil); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := c.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: connections of revoked nodes could not be dropped: %w", ErrMisconfigured, err)
	}
	return nil
}

// checkSync reports [ErrNotSynced] if a server says that it acknowledges before
// it syncs. Servers that do not answer now are not looked at: in a cluster that is
// being restarted there is always one. It asks until some server answers.
func (c *control) checkSync(ctx context.Context) error {
	for {
		answers := 0
		var names []string
		err := ask(ctx, c, askJetStream, server.JSzOptions{Config: true}, func(s server.ServerInfo, js *server.JSInfo) {
			if answers++; !js.Disabled && !js.Config.SyncAlways {
				names = append(names, s.Name)
			}
		})
		switch {
		case len(names) > 0:
			slices.Sort(names)
			return fmt.Errorf("%s: %w", strings.Join(names, ", "), ErrNotSynced)
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
