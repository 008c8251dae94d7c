package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// errShown ends a handshake once the server has shown its certificate.
var errShown = errors.New("the server has shown its certificate")

// Shown returns the certificate, in DER, that each server shows now, by its URL: all that
// are configured or that the servers name. It verifies none of them, and sends them no
// credentials. Beside an error, it has those of the servers that answered. It is empty where
// servers are spoken to in clear.
func (e *External) Shown(ctx context.Context) (map[string][]byte, error) {
	if e.cfg.TLS == nil {
		return nil, nil
	}
	control, err := e.running()
	if err != nil {
		return nil, err
	}
	shown := make(map[string][]byte)
	var errs []error
	for _, url := range control.nc.Servers() {
		if ctx.Err() != nil {
			return shown, ctx.Err()
		}
		if der, err := e.shown(url); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", url, err))
		} else {
			shown[url] = der
		}
	}
	return shown, errors.Join(errs...)
}

// shown returns the certificate that one server shows.
func (e *External) shown(url string) (der []byte, err error) {
	cfg := e.cfg.TLS.Clone()
	cfg.InsecureSkipVerify = true // the handshake does not end: nothing relies on the connection
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		der = s.PeerCertificates[0].Raw
		return errShown
	}
	nc, err := nats.Connect(url, nats.Secure(cfg), nats.Timeout(dialTimeout), nats.IgnoreDiscoveredServers())
	if errors.Is(err, errShown) {
		return der, nil
	}
	if err == nil {
		nc.Close()
		err = errors.New("no TLS")
	}
	return nil, err
}
