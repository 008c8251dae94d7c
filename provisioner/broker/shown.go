package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
)

// maxInfoBytes bounds the line with which a server begins; chosen, it names every server
// of the cluster.
const maxInfoBytes = 64 << 10

// Shown returns the certificate, in DER, that each server shows now, by its URL: all that
// are configured or that the servers name. It verifies none of them, and says nothing to
// them. Beside an error, it has those of the servers that answered. It is empty where
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
	for _, text := range control.nc.Servers() {
		der, err := e.shown(ctx, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", text, err))
			continue
		}
		shown[text] = der
	}
	return shown, errors.Join(errs...)
}

// shown returns the certificate that one server shows.
func (e *External) shown(ctx context.Context, text string) ([]byte, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing was said
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	// It sends this one line in clear, and then waits for the handshake.
	if _, err := bufio.NewReader(io.LimitReader(conn, maxInfoBytes)).ReadBytes('\n'); err != nil {
		return nil, err
	}
	return handshake(ctx, conn, e.cfg.TLS)
}

// handshake returns the certificate with which conn's other side begins TLS.
func handshake(ctx context.Context, conn net.Conn, like *tls.Config) ([]byte, error) {
	cfg := like.Clone()
	// Whose it is, is what is asked; nobody relies on the connection.
	cfg.InsecureSkipVerify, cfg.VerifyConnection = true, nil
	c := tls.Client(conn, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0].Raw, nil
}
