package broker

import (
	"cmp"
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

const (
	// watchEvery is how often it is tried what servers permit: as often as they give a sign of life.
	watchEvery = 10 * time.Second

	// maxSkew is how far a server's clock may be from ours: certificates are backdated by as much.
	maxSkew = 5 * time.Minute

	// unreadFor is how long a question counts that could not be read: nodes may ask seldom.
	unreadFor = 10 * time.Minute
)

// ErrMisconfigured means that servers do not do what they do as [ServerConfig.Text]
// configures them.
var ErrMisconfigured = errors.New("the servers are not as they have to be")

// ErrNotSynced means that a broker acknowledges before it has synced.
var ErrNotSynced = errors.New("broker acknowledges writes that are not on disk: set jetstream.sync_interval to always, as `muster broker config` does, and restart it")

// orderNobody is an order to no server: the id of one is a public key.
var orderNobody = fmt.Sprintf(orderKick, "nobody")

// Watch looks until ctx is done for what [External.Misconfigured] returns, which nothing
// else tells: a question that is not permitted gets no answer, and a connection that was to
// be dropped stays. It returns nil.
func (e *External) Watch(ctx context.Context) error {
	tick := time.NewTicker(e.watchEvery)
	defer tick.Stop()
	for {
		if c, err := e.running(); err == nil && c.nc.IsConnected() { // else there is another complaint
			faults := e.faultsOf(ctx, c)
			e.faults.Store(&faults)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Misconfigured returns an error that wraps [ErrMisconfigured] and says what about the servers
// is not as it has to be, nil if nothing is known. Questions that cannot be read count for ten minutes.
func (e *External) Misconfigured() error {
	var wrong []string
	if found := e.faults.Load(); found != nil {
		wrong = slices.Clone(*found)
	}
	if err := e.Unread(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrMisconfigured, strings.Join(wrong, "; "))
}

// Unread returns why questions of servers about connections could not be read lately, nil if
// all could.
func (e *External) Unread() error {
	if last := e.callout.unread.Load(); last != nil && time.Since(last.at) < unreadFor {
		return fmt.Errorf("a question about a connection was not answered: %w", last.err)
	}
	return nil
}

// faultsOf returns what is wrong with the servers.
func (e *External) faultsOf(ctx context.Context, c *control) (faults []string) {
	for _, url := range c.nc.Servers() {
		faults = append(faults, e.tried(ctx, c, url)...)
	}
	// A server that does not answer is not looked at: another complaint says so.
	_ = ask(ctx, c, askJetStream, server.JSzOptions{Config: true}, func(s server.ServerInfo, js *server.JSInfo) {
		if lax(js) {
			faults = append(faults, fmt.Sprintf("%s: %v", s.Name, ErrNotSynced))
		}
		if skew := time.Since(s.Time).Abs(); !s.Time.IsZero() && skew > maxSkew { // by the real clock, as servers have it
			faults = append(faults, fmt.Sprintf("the clock of server %q differs by %v from the one here, limit %v: set the one that is wrong", s.Name, skew.Round(time.Minute), maxSkew))
		}
	})
	slices.Sort(faults)
	return slices.Compact(faults)
}

// lax reports whether a server says that it acknowledges before it syncs.
func lax(js *server.JSInfo) bool { return !js.Disabled && !js.Config.SyncAlways }

// tried does without any effect, on a connection of its own to one server, what is permitted by the configuration that
// we print: a question that asks for no answer gets none, and the server that gets an order does not exist.
func (e *External) tried(ctx context.Context, c *control, url string) (faults []string) {
	quietly := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) // what is refused is read below
	options := append(e.options("provisioner control, trying"), e.system, nats.NoReconnect(), quietly)
	// The certificate of a server whose address another one has told is to name what that of the other one did.
	if state, err := c.nc.TLSConnectionState(); err == nil && e.cfg.TLS != nil {
		config := e.cfg.TLS.Clone()
		config.ServerName = cmp.Or(config.ServerName, state.ServerName) // empty for an address: nats.go takes that of the URL
		options = append(options, nats.Secure(config))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil // the server is away, or reached by another address
	}
	defer nc.Close()
	for _, subject := range controlHears {
		if _, err := nc.SubscribeSync(subject); err != nil {
			return nil
		}
	}
	for _, subject := range []string{askConnections, askJetStream, orderNobody} {
		_ = nc.Publish(subject, nil) // the error says that the connection is lost just now
	}
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	_ = nc.FlushWithContext(ctx) // likewise
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		faults = append(faults, fmt.Sprintf("not all is permitted that it takes to drop connections of nodes that are revoked or renew: %v: "+
			"print the configuration again with `muster broker config`, one server after the other", err))
	}
	if limit := nc.MaxPayload(); limit < int64(seal.MaxReplyBytes) {
		faults = append(faults, fmt.Sprintf("max_payload is %d, and what nodes are answered may have %d bytes", limit, seal.MaxReplyBytes))
	}
	return faults
}

// checkSync reports [ErrNotSynced] if a server says that it acknowledges before
// it syncs. Servers that do not answer now are not looked at: in a cluster that is
// being restarted there is always one. It asks until some server answers.
func (c *control) checkSync(ctx context.Context) error {
	for {
		answers := 0
		var names []string
		err := ask(ctx, c, askJetStream, server.JSzOptions{Config: true}, func(s server.ServerInfo, js *server.JSInfo) {
			if answers++; lax(js) {
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
