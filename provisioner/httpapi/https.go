package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"muster/provisioner/login"
)

// Limits for the network.
const (
	maxStreams     = 32 // per HTTP/2 connection
	maxHeaderBytes = 16 << 10
	idleTimeout    = 2 * time.Minute
	stalledTimeout = 30 * time.Second // for an HTTP/2 client that reads nothing
)

// HTTPSConfig configures the listener for operators on other machines.
type HTTPSConfig struct {
	// Listen is host:port. Required.
	Listen string

	// Certificate returns the server's certificate. Calls may be concurrent. Required.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Roots are the authorities named to clients. Each request's certificate is verified independently. Optional.
	Roots *x509.CertPool
}

// harden limits a server that other machines can reach. TLS does not require a client certificate: a token may replace
// it, and a refusal is a problem document instead of a TLS alert.
func (c *HTTPSConfig) harden(srv *http.Server) {
	kept := &places{held: make(map[net.Conn]*place)}
	srv.ConnState = kept.follow
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return login.WithNotice(ctx, func(operator string) { kept.keep(c, operator) })
	}
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = readTimeout, idleTimeout, maxHeaderBytes
	srv.TLSConfig = &tls.Config{
		MinVersion:             tls.VersionTLS13,
		GetCertificate:         c.Certificate,
		NextProtos:             []string{"h2", "http/1.1"},
		ClientAuth:             tls.RequestClientCert,
		ClientCAs:              c.Roots,
		SessionTicketsDisabled: true,
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: stalledTimeout}
	// A browser adds an operator's certificate to requests from the pages of any site.
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&Problem{Detail: "cross-site request refused", Status: http.StatusForbidden}).write(w)
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
