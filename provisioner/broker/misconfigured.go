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
	"muster/internal/wire"
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

var (
	// ErrCredentials means that a client sent neither token nor certificate.
	ErrCredentials = errors.New("no usable credentials")

	// ErrName means a bad CONNECT name; see [wire.ValidConnectionName].
	ErrName = errors.New("connection name is not 22 base64url characters, as that of muster's agents is; for Choria " +
		"servers, set choria in provisioner.yaml")

	// ErrCertificate means a certificate that has expired, or is of another role or installation.
	ErrCertificate = errors.New("certificate is not admitted here")

	// ErrToken means a token that is too large or expired.
	ErrToken = errors.New("token is not admitted here")

	// ErrNkey means an nkey that is missing or cannot be proven.
	ErrNkey = errors.New("nkey not proven")
)

// Denied says why a connection is refused. The client does not get the reason.
type Denied struct {
	Code wire.Code

	// Err is shown to operators and contains no secrets.
	Err error
}

func (d *Denied) Error() string { return fmt.Sprintf("connection denied: %s: %v", d.Code, d.Err) }

func (d *Denied) Unwrap() error { return d.Err }

// NotAdmitted means that a node is refused although it holds its certificate's key.
type NotAdmitted struct {
	Node   wire.Identity
	Serial string // of its certificate; see [ca.Serial]
	Err    error
}

func (n *NotAdmitted) Error() string {
	return fmt.Sprintf("node %q, certificate %s: %v", n.Node, n.Serial, n.Err)
}

func (n *NotAdmitted) Unwrap() error { return n.Err }

// deny returns the *Denied that err wraps, or a new one.
func deny(code wire.Code, err error) *Denied {
	if d, ok := errors.AsType[*Denied](err); ok {
		return d
	}
	return &Denied{Code: code, Err: err}
}
