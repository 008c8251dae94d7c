package webhook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/events"
	"muster/provisioner/webhook"
)

// secrets are two, the newer one first.
var secrets = []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" +
	base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))}

// message is a received request.
type message struct {
	id, at, kind string
	body         []byte
	event        events.Stored
}

// receiver is an operator's endpoint: a real HTTPS server that verifies requests.
type receiver struct {
	*httptest.Server
	dir    string
	got    chan message
	status atomic.Int32
	hangs  chan struct{} // if not nil, answers wait until it is closed
}

// newReceiver starts an endpoint that answers with the status.
func newReceiver(t *testing.T, status int, hangs chan struct{}) *receiver {
	t.Helper()
	r := &receiver{dir: t.TempDir(), got: make(chan message, 1000), hangs: hangs}
	r.status.Store(int32(status))
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		m, problem := read(q)
		if problem != "" {
			t.Errorf("request that does not verify: %s: %v", problem, q.Header)
		}
		status := int(r.status.Load()) // the receiver of m may change it
		r.got <- m
		if r.hangs != nil {
			select {
			case <-r.hangs:
			case <-q.Context().Done():
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "thank you")
	}))
	t.Cleanup(r.Close)
	if hangs != nil {
		t.Cleanup(func() { close(hangs) }) // before the server closes: cleanups run backwards
	}
	r.write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})))
	r.write(t, "secret", strings.Join(secrets, "\n"))
	return r
}

func (r *receiver) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read verifies a request by the Standard Webhooks specification, with either secret.
func read(q *http.Request) (m message, problem string) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return m, err.Error()
	}
	m = message{id: q.Header.Get("webhook-id"), at: q.Header.Get("webhook-timestamp"),
		kind: q.Header.Get("Content-Type"), body: body}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return m, err.Error()
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(m.id + "." + m.at + "." + string(body)))
		good := false
		for s := range strings.FieldsSeq(q.Header.Get("webhook-signature")) {
			good = good || s == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
		}
		if !good {
			return m, "no signature by " + secret
		}
	}
	if err := json.Unmarshal(body, &m.event); err != nil {
		return m, err.Error()
	}
	return m, ""
}

// next waits for the next message.
func (r *receiver) next(t *testing.T) message {
	t.Helper()
	select {
	case m := <-r.got:
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message came")
		return message{}
	}
}

// config is a webhook for the endpoint.
func (r *receiver) config(name string, events ...string) daemon.WebhookConfig {
	return daemon.WebhookConfig{Name: name, URL: r.URL + "/events?token=hush", Secret: filepath.Join(r.dir, "secret"),
		CA: filepath.Join(r.dir, "ca.pem"), Events: events, Timeout: conffile.Span(2 * time.Second)}
}

// soon is a schedule for tests: retries come within a tenth of a second, for a long time.
var soon = webhook.Config{Schedule: webhook.Schedule{First: 10 * time.Millisecond, Max: 50 * time.Millisecond,
	Total: time.Hour}}

// newFleet starts a fleet with webhooks.
func newFleet(t *testing.T, change webhook.Config, hooks ...daemon.WebhookConfig) *testbed.Fleet {
	t.Helper()
	f := testbed.New(t, testbed.Options{Webhooks: change, Edit: func(c *daemon.Config) { c.Webhooks = hooks }})
	// A new webhook gets only later events.
	f.Eventually("webhooks have consumers", func() bool {
		return len(consumers(t, f, "MUSTER_ATTEMPTS")) == len(hooks)
	})
	return f
}

// rogue connects as a node and then asks with a forged token.
func rogue(t *testing.T, f *testbed.Fleet, identity string) {
	t.Helper()
	n := f.Node(identity)
	nc := f.Dial(n.Token)
	n.Token = "forged"
	ask(t, f, nc, n)
}
