package httpapi

import (
	"bytes"
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
)

// A Credential is what an operator comes in with over HTTPS, as one PEM file has
// it: their key, their certificate with its issuer's, and the installation's
// roots. Each but the roots may be missing.
type Credential struct {
	Certificate *tls.Certificate // nil without one
	Roots       *x509.CertPool   // nil without one: the system's count
}

// ParseCredential reads a credential. What it returns shows the certificate and
// not the roots. The error holds nothing of the key.
func ParseCredential(text []byte) (*Credential, error) {
	c := &Credential{}
	var chain []byte
	keyed := false
	// One that cannot be read is passed over: without the roots, those of the system would count.
	begun := bytes.Count(text, []byte("-----BEGIN "))
	unread := begun
	for rest := text; ; unread-- {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			keyed = keyed || strings.HasSuffix(block.Type, "PRIVATE KEY")
			continue
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("credential: %w", err)
		}
		if bytes.Equal(parsed.RawIssuer, parsed.RawSubject) {
			if c.Roots == nil {
				c.Roots = x509.NewCertPool()
			}
			c.Roots.AddCert(parsed)
			continue
		}
		chain = append(chain, pem.EncodeToMemory(block)...)
	}
	switch {
	case unread > 0:
		return nil, fmt.Errorf("credential: %d of %d PEM blocks cannot be read: cut short, altered, or with something in front of a line, be it a blank or a byte order mark", unread, begun)
	case keyed && chain != nil:
		pair, err := tls.X509KeyPair(chain, text)
		if err != nil {
			return nil, fmt.Errorf("credential: %w", err)
		}
		c.Certificate = &pair
	case keyed != (chain != nil):
		return nil, errors.New("credential: has one of a private key and its certificate, want both or neither")
	case c.Roots == nil:
		return nil, errors.New("credential: no certificate in PEM")
	}
	return c, nil
}

// CheckURL returns an error if base is not the URL of a provisioner,
// https://host:port, in one line without what may be a password in it.
func CheckURL(base string) error {
	_, err := hostOf(base)
	return err
}

// hostOf returns host and port of the URL of a provisioner.
func hostOf(base string) (string, error) {
	if strings.Contains(base, "@") { // what is in front of it may be a password
		return "", errors.New("URL with an @, want https://host:port: who you are says a credential or a token")
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("URL %.200q, want https://host:port", base)
	}
	return u.Host, nil
}

// dialTimeout is how long a connection may take. A lost SYN is sent again after 1, 3 and 7 s (RFC 6298).
const dialTimeout = 10 * time.Second

// NewRemote returns a client for the provisioner at base, see [CheckURL],
// which it knows by the roots of the credential. It shows the token, if there is
// one, or else the credential's certificate. It opens nothing.
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
		// A credential is not carried on to where an answer points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}
