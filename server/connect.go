package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"muster/internal/discover"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// fleetBrokers returns the brokers of server.conf, else those of the token.
func (v *inspection) fleetBrokers() (urls []string, srv string) {
	if c := v.conf; c != nil && (len(c.Brokers) > 0 || c.SRVDomain != "") {
		return c.Brokers, c.SRVDomain
	}
	if v.token != nil {
		return v.token.URLs(), v.token.SRVDomain
	}
	return nil, ""
}

func (a *agent) connectFleet(ctx context.Context, v *inspection) (*link.Conn, error) {
	urls, srv := v.fleetBrokers()
	if len(urls) == 0 && srv == "" {
		return nil, advice.Errorf("set brokers in server.conf", "no brokers configured")
	}
	return a.connectAny(ctx, v, urls, srv)
}

func (a *agent) connectAny(ctx context.Context, v *inspection, urls []string, srv string) (*link.Conn, error) {
	brokers, err := a.dialer.Brokers(ctx, urls, srv, true)
	if err != nil {
		return nil, link.Explain(err, fleetPeer)
	}
	var failures []error
	for _, b := range brokers {
		conn, err := a.connectWithCertificate(ctx, v, b)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, link.Explain(err, fleetPeer))
	}
	return nil, link.Join(failures)
}

// fleetPeer explains failures of connections with the node's certificate.
var fleetPeer = link.Peer{Secure: true, Refused: "the broker does not admit this node's certificate: " +
	"it may be revoked, superseded, or newer than a restored backup; " +
	"ask an operator to run `muster node explain` with this node's name"}

func (a *agent) connectWithCertificate(ctx context.Context, v *inspection, b discover.Broker) (*link.Conn, error) {
	a.cfg.Alive()
	return a.dialer.Connect(ctx, b, link.Auth{TLS: v.creds.TLS(b.Host, a.clock.at)})
}

func (a *agent) connectWithToken(ctx context.Context, v *inspection, b discover.Broker) (*link.Conn, error) {
	a.cfg.Alive()
	p, err := v.token.auth()
	if err != nil {
		return nil, err
	}
	p.TLS = a.tokenTLS(ctx, v.token, b)
	return a.dialer.Connect(ctx, b, p)
}

func (a *agent) tokenTLS(ctx context.Context, t *token, b discover.Broker) *tls.Config {
	switch {
	case !t.Secure && !link.HasTLS(b.URL):
		return nil
	case t.Limits.CA == "":
		a.problems.problem(ctx, slog.LevelWarn, msgUnpinned, advice.New(errors.New("the token pins no authority"),
			"sign the token with --ca, so that nodes know which authority to expect"), "broker", b.URL)
		return trust.UnpinnedTLS()
	}
	behindProxy := t.sealed() && strings.HasPrefix(b.URL, "wss:")
	return trust.PinnedTLS(t.Limits.CA, b.Host, behindProxy, a.clock.at)
}

func (a *agent) tokenPeer(t *token, b discover.Broker) link.Peer {
	p := link.Peer{Secure: t.Secure || link.HasTLS(b.URL), Refused: t.outOfDate(a.clock.now())}
	switch {
	case p.Refused != "":
	case t.sealed():
		p.Refused = fmt.Sprintf("the provisioner does not have the token's seal key, or does not trust the token's "+
			"signer, or the token is not valid now: see the provisioner's log, or replace %s with a token signed with "+
			"the --seal of this fleet", t.file)
	default:
		p.Refused = "the broker does not trust the token's signer, or the token is not valid now: " +
			"see the broker's log, or replace " + t.file
	}
	return p
}
