package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds on who comes over the network; chosen. Operators are few: a console
// takes some connections, a script one.
const (
	maxConns       = 512
	maxStreams     = 32 // of one HTTP/2 connection
	maxHeaderBytes = 16 << 10
	idleTimeout    = 2 * time.Minute
	stalledTimeout = 30 * time.Second // of an HTTP/2 connection that takes nothing
)

// HTTPSConfig configures the listener for operators on other machines.
type HTTPSConfig struct {
	// Listen is its address, host:port. Required.
	Listen string

	// Certificate returns what it shows. It is called for each connection,
	// concurrently. Required.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Roots tells clients of which authorities certificates are asked for. What
	// they show is verified with each request, whatever it says here. Optional.
	Roots *x509.CertPool
}

func (c *HTTPSConfig) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("HTTPS: %w", err)
	}
	return netutil.LimitListener(l, maxConns), nil
}

// harden prepares a server for strangers. A certificate is asked for and not
// required: the token may say who it is, and who it is not is answered by a
// problem document and not by a TLS alert.
func (c *HTTPSConfig) harden(srv *http.Server) {
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = readTimeout, idleTimeout, maxHeaderBytes
	srv.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: c.Certificate, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequestClientCert, ClientCAs: c.Roots, SessionTicketsDisabled: true,
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: stalledTimeout}
	// A browser with an operator's certificate shows it to whatever page makes it
	// ask: other sites' pages may not.
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&Problem{Detail: "a request of another site's page", Status: http.StatusForbidden}).write(w)
	}))
	inner := guarded.Handler(srv.Handler)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Strict-Transport-Security", "max-age=31536000")
		inner.ServeHTTP(w, r)
	})
}
