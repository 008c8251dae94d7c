package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"muster/internal/discover"
)

// A way leads to one broker: it dials for nats.go, which takes no context.
// Until release is called the connection ends with the context.
type way struct {
	ctx   context.Context
	net   net.Dialer
	proxy *url.URL // nil for none

	mu    sync.Mutex // guards what follows
	err   error
	stop  func() bool
	asked time.Time // when the broker was reached: nats.go sends CONNECT at once
}

func (d *Dialer) way(ctx context.Context, b discover.Broker, proxy string) (*way, error) {
	p, err := d.proxyFor(b, proxy)
	if err != nil {
		return nil, err
	}
	return &way{ctx: ctx, net: net.Dialer{Timeout: dialTimeout, Resolver: d.cfg.Resolver}, proxy: p}, nil
}

// Dial implements [nats.CustomDialer].
func (w *way) Dial(_, address string) (net.Conn, error) {
	plain, err := w.dial(address)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err != nil {
		return nil, err
	}
	w.stop = context.AfterFunc(w.ctx, func() { _ = plain.Close() })
	w.asked = time.Now()
	return plain, nil
}

// secure returns config with the broker's name; a handshake does not count as
// waiting for admission.
func (w *way) secure(config *tls.Config, host string) *tls.Config {
	c := config.Clone()
	c.ServerName = cmp.Or(c.ServerName, host)
	verify := c.VerifyConnection
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		w.mu.Lock()
		w.asked = time.Now()
		w.mu.Unlock()
		if verify == nil {
			return nil
		}
		return verify(cs)
	}
	return c
}

func (w *way) dial(address string) (net.Conn, error) {
	if w.proxy == nil {
		return w.net.DialContext(w.ctx, "tcp", address)
	}
	conn, err := w.net.DialContext(w.ctx, "tcp", w.proxy.Host)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	stop := context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := tunnel(w.ctx, conn, w.proxy, address); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// release lets the connection outlive the context. It reports false if the
// context has ended it.
func (w *way) release() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stop == nil || w.stop()
}

// HasTLS reports whether a URL asks for TLS.
func HasTLS(url string) bool {
	return strings.HasPrefix(url, "tls:") || strings.HasPrefix(url, "wss:")
}
