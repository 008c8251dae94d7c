package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/cli"
	"muster/provisioner/events"
)

type hook struct {
	cfg      Config // read-only
	tries    int
	endpoint *endpoint

	// alarmChanged is called without mu.
	alarmChanged func(context.Context)

	mu      sync.Mutex
	state   events.Webhook // guarded by mu
	dropped bool           // guarded by mu: an event was given up, and none delivered since
	alarm   string         // guarded by mu: the alarm's cause, or ""
}

func (h *hook) subscription() events.Subscription {
	// The timeout exceeds that of a request, so that no other process gets the event meanwhile.
	const factor = 2
	return events.Subscription{
		Name:            "webhook-" + h.cfg.Name,
		Types:           h.cfg.Events,
		MaxInFlight:     maxRequests,
		DeliveryTimeout: factor * h.cfg.Timeout,
		ExpireAfter:     h.cfg.ExpireAfter,
	}
}

// deliver tries once to deliver an event. After a crash at any step the event is delivered again.
func (h *hook) deliver(ctx context.Context, d *events.Delivery) events.Settlement {
	if h.isOwnAlarm(d.Event) {
		return events.Settlement{Settled: true}
	}
	body, err := json.Marshal(d.Event)
	if err != nil { // impossible: it was just decoded
		h.cfg.Log.ErrorContext(ctx, "event not delivered", "name", h.cfg.Name, "err", err)
		return events.Settlement{Settled: true}
	}
	answer, retryAfter := h.endpoint.post(ctx, d.ID, body)
	switch {
	case answer.Cause == "":
		h.delivered(ctx, d)
		return events.Settlement{Settled: true}
	case ctx.Err() != nil: // stopping is no failure
		return events.Settlement{}
	}
	givenUp := d.Tries >= h.tries
	h.failed(ctx, d, answer.Cause, givenUp)
	return events.Settlement{Settled: givenUp, RetryAfter: h.cfg.Schedule.Wait(d.Tries, retryAfter)}
}

// isOwnAlarm reports whether an event is this webhook's alarm, which cannot be delivered either.
func (h *hook) isOwnAlarm(e *events.Stored) bool {
	data := e.Read()
	return e.Type == events.AlarmRaised && data.Code == events.AlarmWebhookFailed &&
		strings.Contains(data.Cause, h.title()+": ")
}

func (h *hook) title() string { return "webhook " + h.cfg.Name }

func (h *hook) delivered(ctx context.Context, d *events.Delivery) {
	h.mu.Lock()
	since := h.state.FailingSince
	h.state.Delivered++
	h.dropped, h.alarm = false, ""
	h.state.LastDelivery, h.state.FailingSince, h.state.Cause = h.cfg.Now().UTC(), time.Time{}, ""
	h.state.Lag = h.age(d)
	h.mu.Unlock()
	if !since.IsZero() {
		h.cfg.Log.InfoContext(ctx, "webhook delivers again", "name", h.cfg.Name, "elapsed", h.cfg.Now().Sub(since))
	}
	h.alarmChanged(ctx)
}

// failed records a failed try. It logs only the first of a row.
func (h *hook) failed(ctx context.Context, d *events.Delivery, cause string, givenUp bool) {
	h.mu.Lock()
	now := h.cfg.Now().UTC()
	first := h.state.FailingSince.IsZero()
	if first {
		h.state.FailingSince = now
	}
	if h.state.Failed++; givenUp {
		h.state.GivenUp++
		h.dropped = true
	}
	h.state.Cause, h.state.Lag = cause, h.age(d)
	serious := givenUp || now.Sub(h.state.FailingSince) >= h.cfg.AlarmAfter
	if serious {
		h.alarm = cause
	}
	h.mu.Unlock()
	if first {
		h.cfg.Log.WarnContext(ctx, "webhook failed", "name", h.cfg.Name, "endpoint", h.endpoint.origin(), "err", cause)
	}
	if givenUp {
		h.cfg.Log.ErrorContext(ctx, "event given up", "name", h.cfg.Name, "endpoint", h.endpoint.origin(), "subject",
			d.Event.Type, "id", d.ID, "err", cause)
	}
	if serious {
		h.alarmChanged(ctx)
	}
}

func (h *hook) age(d *events.Delivery) time.Duration {
	return max(0, h.cfg.Now().Sub(d.Event.Time))
}

// setWaiting sets the number of unsettled events. If it is 0, another provisioner has delivered what failed here.
func (h *hook) setWaiting(ctx context.Context, n uint64) {
	h.mu.Lock()
	h.state.Waiting = n
	over := n == 0 && !h.dropped && !h.state.FailingSince.IsZero()
	if n == 0 {
		h.state.Lag = 0
	}
	if over {
		h.state.FailingSince, h.state.Cause, h.alarm = time.Time{}, "", ""
	}
	h.mu.Unlock()
	if over {
		h.alarmChanged(ctx)
	}
}

func (h *hook) alarmCause() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alarm
}

func (h *hook) status() events.Webhook {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.state
	w.Name, w.Endpoint, w.Events = h.cfg.Name, h.endpoint.origin(), h.cfg.Events
	return w
}

// Limits of a secret, in bytes (Standard Webhooks, "signature scheme").
const (
	minSecretBytes = 24
	maxSecretBytes = 64
)

const secretPrefix = "whsec_"

var errSecret = errors.New("want whsec_ and 24 to 64 random bytes in base64, one secret per line: " +
	"(printf whsec_; openssl rand -base64 32)")

// Secrets are the secrets of one endpoint. All of them sign each message, so that a secret can be replaced. Make them
// with [ParseSecrets].
type Secrets [][]byte

// maxSecrets bounds the secrets of one endpoint. A replacement needs two.
const maxSecrets = 4

// ParseSecrets parses 1 to 4 secrets, one per line. Errors name lines, never contents.
func ParseSecrets(text []byte) (Secrets, error) {
	var all Secrets
	var bad []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		b64, ok := strings.CutPrefix(line, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(b64)
		if !ok || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
			bad = append(bad, strconv.Itoa(n))
			continue
		}
		all = append(all, key)
	}
	switch {
	case len(bad) > 0:
		return nil, fmt.Errorf("line %s: %w", strings.Join(bad, ", "), errSecret)
	case len(all) == 0:
		return nil, fmt.Errorf("empty: %w", errSecret)
	case len(all) > maxSecrets:
		return nil, fmt.Errorf("%d secrets, limit %d", len(all), maxSecrets)
	}
	return all, nil
}

func (s Secrets) String() string { return fmt.Sprintf("(%d secrets)", len(s)) }

// GoString implements [fmt.GoStringer].
func (s Secrets) GoString() string { return s.String() }

// Sign returns the webhook-signature of a message: one signature by each secret.
func (s Secrets) Sign(id string, at time.Time, body []byte) string {
	signatures := make([]string, len(s))
	for i, key := range s {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}

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
	cfg  *Config // read-only
	url  *url.URL
	http *http.Client
}

func newEndpoint(cfg *Config) (*endpoint, error) {
	u, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		cfg: cfg,
		url: u,
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
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	body = cli.PrintableJSON(body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.String(), bytes.NewReader(body))
	if err != nil {
		a.Cause = errURL.Error()
		return a, 0
	}
	now := e.cfg.Now()
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("User-Agent", "muster/"+e.cfg.Version)
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", e.cfg.Secrets.Sign(id, now, body))
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
		return fmt.Sprintf("no answer within %v", e.cfg.Timeout)
	}
	text := strings.ToValidUTF8(err.Error(), "?")
	return text[:min(len(text), maxCauseBytes)]
}
