package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// ErrNotServing means that no provisioner listens at a socket or address.
var ErrNotServing = errors.New("no provisioner answers")

// ErrSilent means that a provisioner accepts connections but does not answer. It may have carried out the request.
var ErrSilent = errors.New("it accepts connections but does not answer")

// silentTimeout bounds the wait for the first byte. A command to a node and the tests of a policy take seconds.
const silentTimeout = time.Minute

// A Client calls a provisioner of this machine or of another. It is safe for concurrent use.
type Client struct {
	socket string // empty: another machine's
	base   string // scheme and host
	token  string // used instead of a certificate
	http   *http.Client

	loggedIn bool // presents a certificate or a token
}

// NewClient returns a client for the socket at path. It opens nothing.
func NewClient(path string) *Client {
	return &Client{socket: path, base: "http://provisioner", http: &http.Client{Transport: &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
		ResponseHeaderTimeout: silentTimeout,
	}}}
}

// Observe wraps the client's [*http.Transport], for tests. Call it before the first request.
func (c *Client) Observe(wrap func(http.RoundTripper) http.RoundTripper) *Client {
	c.http.Transport = wrap(c.http.Transport)
	return c
}

// Do sends a request with in as its body, and decodes the answer into out. Either may be nil. The error is a *[Problem]
// by the provisioner, [ErrNotServing] or [ErrSilent].
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	resp, err := c.send(ctx, method, path, "", &body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("%s is not a muster provisioner: its answer is not JSON; %s", c.where(), listenRemedy)
		}
		return fmt.Errorf("answer of the provisioner: %w", err)
	}
	return nil
}

// Clock returns the provisioner's time, to the second. Errors are those of [Client.Do].
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	resp, err := c.send(ctx, http.MethodGet, "/healthz", "", nil)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = resp.Body.Close() }() // the header is enough
	return http.ParseTime(resp.Header.Get("Date"))
}

// send sends a request. accept is a media type, "" for JSON. The caller closes the body. Errors are those of Do.
func (c *Client) send(ctx context.Context, method, path, accept string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		var failed *url.Error
		var dialed *net.OpError
		if errors.As(err, &failed) && failed.Timeout() && ctx.Err() == nil &&
			(!errors.As(err, &dialed) || dialed.Op != "dial") {
			err = ErrSilent
		}
		return nil, c.explain(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // only read
	p := &Problem{Status: resp.StatusCode}
	if err := json.NewDecoder(resp.Body).Decode(p); err != nil || p.Detail == "" {
		p.Detail = fmt.Sprintf("%s is not a muster provisioner: it answers %s", c.where(), resp.Status)
		p.Remedy = listenRemedy
	} else if p.Status == http.StatusUnauthorized && !c.loggedIn {
		p.Remedy = "give a credential or a token with --login (MUSTER_LOGIN)"
	}
	return nil, p
}

const listenRemedy = "--url must have the host of a provisioner and the port of api.listen in its provisioner.yaml"

func (c *Client) where() string { return cmp.Or(c.socket, c.base) }

// explain turns a failed connection into an error with cause and remedy.
func (c *Client) explain(err error) error {
	if errors.Is(err, ErrSilent) {
		return fmt.Errorf("%s: %w: its process hangs or is stopped (state T in `ps`), or its machine is down; "+
			"see its log. "+
			"The request may have been carried out", c.where(), ErrSilent)
	}
	if c.socket == "" {
		return c.explainRemote(err)
	}
	const remedy = "start the provisioner with `muster provisioner run`, or name its configuration with --config, " +
		"or the URL of another one with --url"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w; run this as root or as the provisioner's user", c.socket, syscall.EACCES)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w at %s: no such socket, so no provisioner with this data_dir runs on this machine: %s",
			ErrNotServing, c.socket, remedy)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s: connection refused, so its process has ended: %s", ErrNotServing, c.socket, remedy)
	}
	return err
}

func (c *Client) explainRemote(err error) error {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var plain tls.RecordHeaderError
	var noName *net.DNSError
	var dialed *net.OpError
	var failed *url.Error
	switch {
	case errors.As(err, &noName):
		return fmt.Errorf("%w at %s: host %q is not found: %s; correct --url (MUSTER_URL) or the DNS entry",
			ErrNotServing, c.base, noName.Name, noName.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s: connection refused: "+
			"start the provisioner, or check api.listen in its provisioner.yaml", ErrNotServing, c.base)
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return fmt.Errorf("%w at %s: %w: its machine is down, or a firewall blocks the connection",
			ErrNotServing, c.base, dialed.Err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%s: TLS: its certificate is valid from %s to %s, and the clock of this machine says %s: "+
			"correct the wrong clock, or renew the certificate",
			c.base, utc(invalid.Cert.NotBefore), utc(invalid.Cert.NotAfter), utc(time.Now()))
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: TLS: its certificate is issued by %q, which is not trusted here: give --login "+
			"(MUSTER_LOGIN) a file with the installation's roots, such as `muster operator add` writes",
			c.base, unknown.Cert.Issuer.CommonName)
	case errors.As(err, &other):
		return fmt.Errorf("%s: TLS: %w: use one of these names in --url, or add the host of --url to api.names or "+
			"api.addresses in its provisioner.yaml",
			c.base, other)
	case errors.As(err, &plain):
		return fmt.Errorf("%s is not a muster provisioner: it does not speak TLS; %s", c.base, listenRemedy)
	case errors.As(err, &failed):
		return fmt.Errorf("%s: %w", c.base, failed.Err) // drops method and path
	}
	return err
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
