package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster/internal/cli"
	"muster/provisioner/events"
)

// Limits of an endpoint's answer. Only its status matters.
const (
	maxAnswerBytes = 1 << 10
	maxHeaderBytes = 16 << 10
	maxCauseBytes  = 256
)

const idleTimeout = time.Minute

// errURL does not quote the URL, which may hold a secret.
var errURL = errors.New("want https://, a host, and no fragment")

// ParseURL parses an endpoint's URL. Errors do not quote it.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		return nil, errURL
	}
	return u, nil
}

type endpoint struct {
	url     *url.URL
	secrets Secrets
	timeout time.Duration
	agent   string
	now     func() time.Time
	http    *http.Client
}

func newEndpoint(cfg *Config) (*endpoint, error) {
	u, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		url:     u,
		secrets: cfg.Secrets,
		timeout: cfg.Timeout,
		agent:   "muster/" + cfg.Version,
		now:     cfg.Now,
		http: &http.Client{
			Transport: transport(cfg.Roots),
			// A redirect is not a delivery.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// transport serves one webhook, so that it never waits for connections of another.
func transport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConnsPerHost:    2 * maxRequests,
		IdleConnTimeout:        idleTimeout,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
}

// origin returns the part of the URL that is no secret.
func (e *endpoint) origin() string { return e.url.Scheme + "://" + e.url.Host }

// post sends a message once. retryAfter is the endpoint's Retry-After, or 0.
func (e *endpoint) post(ctx context.Context, id string, body []byte,
) (a events.WebhookAnswer, retryAfter time.Duration) {
	a.ID = id
	began := time.Now()
	defer func() { a.Elapsed = time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	body = cli.PrintableJSON(body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.String(), bytes.NewReader(body))
	if err != nil {
		a.Cause = errURL.Error()
		return a, 0
	}
	now := e.now()
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("User-Agent", e.agent)
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", e.secrets.Sign(id, now, body))
	resp, err := e.http.Do(r)
	if err == nil && ctx.Err() != nil {
		// Some servers answer 200 after the caller has hung up, and net/http still reads the answer. That is no
		// delivery.
		_ = resp.Body.Close() // only read
		err = ctx.Err()
	}
	if err != nil {
		a.Cause = e.cause(err)
		return a, 0
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	a.Status, a.Body = resp.StatusCode, strings.ToValidUTF8(string(text), "?")
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		a.Cause = "answered " +
			strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			a.Cause += "; redirects are not followed: correct the url"
		}
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err == nil && seconds > 0 {
		retryAfter = time.Duration(min(seconds, int(time.Hour/time.Second))) * time.Second
	}
	return a, retryAfter
}

// cause returns the text of err without the URL that net/http adds.
func (e *endpoint) cause(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", e.timeout)
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	return text[:min(len(text), maxCauseBytes)]
}
