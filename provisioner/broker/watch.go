package broker

import (
	"cmp"
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

	"muster/internal/seal"
)

const (
	// watchEvery is how often it is tried what servers permit; chosen, as often as
	// they give a sign of life.
	watchEvery = 10 * time.Second

	// heldFor is for how many of these a fault counts that is not found again.
	heldFor = 3

	// maxSkew is how far a server's clock may be from ours; chosen, certificates are backdated
	// by as much.
	maxSkew = 5 * time.Minute

	// unreadFor is how long a question counts that could not be read: nodes may ask seldom, and
	// what comes and goes with each of them says nothing. Chosen.
	unreadFor = 10 * time.Minute
)

// ErrMisconfigured means that servers do not do what they do as [ServerConfig.Text]
// configures them.
var ErrMisconfigured = errors.New("the servers are not as they have to be")

// orderNobody is an order to no server: the id of one is a public key.
var orderNobody = fmt.Sprintf(orderKick, "nobody")

// Watch looks until ctx is done for what [External.Misconfigured] returns, which nothing
// else tells: who asks for what is not permitted gets no answer, and a connection that was to
// be dropped stays. It returns nil.
func (e *External) Watch(ctx context.Context) error {
	tick := time.NewTicker(e.watchEvery)
	defer tick.Stop()
	for {
		e.try(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Misconfigured returns an error that wraps [ErrMisconfigured] and says what about the servers
// is not as it has to be, nil if nothing is known. Of what they permit, it is about the one that
// we are connected to. It is over half a minute after it was mended; questions that cannot be
// read count for ten. others are connections of ours that are looked at as well.
func (e *External) Misconfigured(others ...*nats.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	wrong := slices.Sorted(maps.Keys(e.standing()))
	if err := e.Unread(); err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, nc := range append(others, e.control) {
		if nc == nil {
			continue
		}
		if small := tooSmall(nc.MaxPayload()); small != "" && !slices.Contains(wrong, small) {
			wrong = append(wrong, small)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrMisconfigured, strings.Join(wrong, "; "))
}

// tooSmall says what is wrong with a limit on the size of messages, "" if nothing is.
func tooSmall(maxPayload int64) string {
	if maxPayload >= int64(seal.MaxReplyBytes) {
		return ""
	}
	return fmt.Sprintf("max_payload is %d, and what nodes are answered may have %d bytes", maxPayload, seal.MaxReplyBytes)
}

// Unread returns why questions of servers about connections could not be read lately, nil if
// all could.
func (e *External) Unread() error {
	if last := e.callout.unread.Load(); last != nil && time.Since(last.at) < unreadFor {
		return fmt.Errorf("a question about a connection was not answered: %w", last.err)
	}
	return nil
}

// standing returns the faults that count, and forgets the others. The caller holds mu.
func (e *External) standing() map[string]time.Time {
	maps.DeleteFunc(e.faults, func(_ string, at time.Time) bool { return time.Since(at) > heldFor*e.watchEvery })
	return e.faults
}

// fault notes what is wrong with a server, and reports whether that is new.
func (e *External) fault(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.standing()[what]
	e.faults[what] = time.Now()
	return !known
}

// try does once, and without any effect, what only those can do who are permitted to: servers do
// nothing for who wants no answer, and the one that gets an order is none. What is refused
// comes to complained. What is heard is subscribed anew: a server that did not
// permit it for a while has forgotten it.
func (e *External) try(ctx context.Context) {
	nc, err := e.running()
	if err != nil || !nc.IsConnected() {
		return // of which others complain
	}
	for _, subject := range []string{askConnections, askJetStream, orderNobody} {
		_ = nc.Publish(subject, nil) // the error says that the connection is lost just now
	}
	if sub, err := nc.SubscribeSync(controlInbox + ".nobody"); err == nil {
		_ = sub.Unsubscribe()
	}
	// Who is connected is not told of another limit: it loses the connection when it breaks it.
	if fresh, err := e.connectAnew(nc); err == nil {
		if small := tooSmall(fresh.MaxPayload()); small != "" {
			e.fault(small)
		}
		fresh.Close()
	}
	before := e.heard
	if e.heard, err = e.follow(ctx, nc); err != nil {
		e.heard = append(before, e.heard...)
		return
	}
	for _, sub := range before {
		_ = sub.Unsubscribe()
	}
	// One that was started anew may be configured anew. Who does not answer is not looked at, as at the start.
	if _, lax, _ := e.notSynced(ctx, nc); len(lax) > 0 {
		e.fault(fmt.Sprintf("%s: %v", strings.Join(lax, ", "), ErrNotSynced))
	}
}

// connectAnew makes another connection to the server that nc is connected to, for the moment. Of a server whose
// address another one has told, the certificate is to name what that of the other one did, as on nc.
func (e *External) connectAnew(nc *nats.Conn) (*nats.Conn, error) {
	options := append(e.options("provisioner control, looking"), e.system, nats.NoReconnect())
	if state, err := nc.TLSConnectionState(); err == nil && e.cfg.TLS != nil {
		config := e.cfg.TLS.Clone()
		config.ServerName = cmp.Or(config.ServerName, state.ServerName) // empty for an address: nats.go takes that of the URL
		options = append(options, nats.Secure(config))
	}
	return nats.Connect(nc.ConnectedUrl(), options...)
}

// complained takes what nats.go meets on the connection to the servers' own account.
func (e *External) complained(nc *nats.Conn, sub *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		complain(e.log)(nc, sub, err)
		return
	}
	what := fmt.Sprintf("not all is permitted that it takes to drop connections of nodes that are revoked or renew: %v: "+
		"print the configuration again with `muster broker config`, one server after the other", err)
	if e.fault(what) { // a start may wait for what it will not get
		complain(e.log)(nc, sub, err)
	}
}

// compareClocks looks at the time in a server's sign of life. Nobody connects with a certificate there that is
// not valid yet by its clock, or stays with an admission that is over by it, and we are not asked.
func (e *External) compareClocks(sign []byte) {
	var s server.ServerStatsMsg
	if json.Unmarshal(sign, &s) != nil || s.Server.Time.IsZero() {
		return
	}
	if skew := time.Since(s.Server.Time).Abs(); skew > maxSkew { // by the real clock, as servers have it
		e.fault(fmt.Sprintf("the clock of server %q differs by %v from the one here, limit %v: set the one that is wrong", s.Server.Name, skew.Round(time.Minute), maxSkew))
	}
}
