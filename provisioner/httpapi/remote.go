package httpapi

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/internal/keyfile"
)

// A Credential is an operator's PEM file for HTTPS: key, certificate, the issuer's certificate, and the installation's
// roots. Only the roots are required.
type Credential struct {
	Certificate *tls.Certificate // nil: none
	Roots       *x509.CertPool   // nil: the system's
}

// ParseCredential reads a credential. The error does not quote the key.
func ParseCredential(text []byte) (*Credential, error) {
	c := &Credential{}
	var chain []byte
	keyed := false
	// Unreadable blocks are an error: without the roots, the client would trust those of the system.
	blocks, err := keyfile.Blocks(text)
	if err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	for _, block := range blocks {
		if block.Type != "CERTIFICATE" {
			keyed = keyed || strings.HasSuffix(block.Type, "PRIVATE KEY")
			continue
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("credential: %w", err)
		}
		if bytes.Equal(parsed.RawIssuer, parsed.RawSubject) {
			c.Roots = cmp.Or(c.Roots, x509.NewCertPool())
			c.Roots.AddCert(parsed)
			continue
		}
		chain = append(chain, pem.EncodeToMemory(block)...)
	}
	switch {
	case keyed && chain != nil:
		pair, err := tls.X509KeyPair(chain, text)
		if err != nil {
			return nil, fmt.Errorf("credential: %w", err)
		}
		c.Certificate = &pair
	case keyed != (chain != nil):
		return nil, errors.New("credential: has a private key or a certificate alone, want both or neither")
	case c.Roots == nil:
		return nil, errors.New("credential: no certificate in PEM")
	}
	return c, nil
}

// CheckURL returns an error unless base is https://host:port. The error quotes no password.
func CheckURL(base string) error {
	_, err := hostOf(base)
	return err
}

func hostOf(base string) (string, error) {
	if strings.Contains(base, "@") { // it may be a password
		return "", errors.New("URL with an @, want https://host:port: " +
			"a credential or a token, not the URL, identifies you")
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("URL %.200q, want https://host:port", base)
	}
	return u.Host, nil
}

// dialTimeout bounds connecting. A lost SYN is sent again after 1, 3 and 7 s (RFC 6298).
const dialTimeout = 10 * time.Second

// NewRemote returns a client for the provisioner at base, see [CheckURL]. It authenticates with token or, if token is
// empty, with the credential's certificate. It opens nothing.
func NewRemote(base string, c Credential, token string) (*Client, error) {
	host, err := hostOf(base)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.Roots}
	if c.Certificate != nil && token == "" {
		cfg.Certificates = []tls.Certificate{*c.Certificate}
	}
	loggedIn := token != "" || c.Certificate != nil
	return &Client{base: "https://" + host, token: token, loggedIn: loggedIn, http: &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig:       cfg,
			ForceAttemptHTTP2:     true,
			TLSHandshakeTimeout:   readTimeout,
			ResponseHeaderTimeout: silentTimeout,
		},
		// Do not send the credential to the target of a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}
