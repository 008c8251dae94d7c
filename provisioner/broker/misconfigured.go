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
	"muster/internal/span"
)

const unreadableFor = 10 * time.Minute

// ErrMisconfigured means a server that is not configured by [ServerConfig.Text].
var ErrMisconfigured = errors.New("the servers are not configured as `muster broker config` prints it")

// ErrNotSynced means that acknowledged writes may be lost.
var ErrNotSynced = errors.New("broker acknowledges writes that are not on disk: " +
	"set jetstream.sync_interval to always, as `muster broker config` does, and restart it")

// kickNoServer names no server; publishing to it only checks the permission.
var kickNoServer = fmt.Sprintf(kickSubject, "none")

// CalloutError returns why a callout request of the last ten minutes was unreadable, or nil.
func (e *External) CalloutError() error {
	if last := e.callout.unread.Load(); last != nil && time.Since(last.at) < unreadableFor {
		return fmt.Errorf("a callout request of a broker could not be read: %w", last.err)
	}
	return nil
}

// checkServer returns [ErrMisconfigured] if permissions or max_payload are too low. The requests that it sends have
// no effect.
func (c *control) checkServer(ctx context.Context) error {
	if limit := c.nc.MaxPayload(); limit < int64(seal.MaxReplyBytes) {
		return fmt.Errorf("%w: max_payload is %d, want at least %d, the size of replies to nodes",
			ErrMisconfigured, limit, seal.MaxReplyBytes)
	}
	inbox, err := c.nc.SubscribeSync(controlInbox + ".>")
	if err != nil {
		return err
	}
	defer func() { _ = inbox.Unsubscribe() }()
	for _, subject := range []string{connzSubject, jszSubject, kickNoServer} {
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
		return fmt.Errorf("%w: revoked nodes cannot be disconnected: %w", ErrMisconfigured, err)
	}
	return nil
}

// checkSync returns [ErrNotSynced] if a server acknowledges before syncing. One answer is enough, because another
// server may be restarting.
func (c *control) checkSync(ctx context.Context) error {
	for {
		answers := 0
		var names []string
		err := query(ctx, c, jszSubject, server.JSzOptions{Config: true}, func(s server.ServerInfo, js *server.JSInfo) {
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
		if !span.Sleep(ctx, answerGap) {
			return errors.Join(ctx.Err(), err)
		}
	}
}
