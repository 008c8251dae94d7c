package webhook_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/events"
	"muster/provisioner/webhook"
)

// TestSignsAsStandardWebhooks signs the example of the reference implementation (libraries/go/webhook_test.go), and
// with two secrets.
func TestSignsAsStandardWebhooks(t *testing.T) {
	t.Parallel()
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	s, err := webhook.ParseSecrets([]byte(secrets[0] + "\r\n\n" + secrets[1]))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(s.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`)))
	if len(got) != 2 || got[0] != want || got[1] == want {
		t.Errorf("signed %q, want %s and another", got, want)
	}
}

// answered is a generous time limit for an endpoint that answers, since test machines pause.
const answered = webhook.MaxTimeout

// try sends a test event to an endpoint and returns the result.
func try(t *testing.T, url string, roots *x509.CertPool, within time.Duration) *events.WebhookAnswer {
	t.Helper()
	s, err := webhook.ParseSecrets([]byte(strings.Join(secrets, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	set, err := webhook.New([]webhook.Config{{Name: "pager", URL: url, Secrets: s, Roots: roots, Timeout: within,
		Version: "test"}},
		events.NewAlarms(events.AlarmConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := set.Test(t.Context(), "pager", "ada")
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// pool returns the authority of a server's certificate.
func pool(s *httptest.Server) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p
}

// TestTestEventIsSigned sends one, and gets the answer.
func TestTestEventIsSigned(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusAccepted, nil)
	a := try(t, r.URL, pool(r.Server), answered)
	m := r.next(t)
	if a.Cause != "" || a.Status != http.StatusAccepted || a.Body != "thank you" || a.ID != m.id || a.Elapsed <= 0 {
		t.Errorf("answer %+v", a)
	}
	if err := testbed.CheckEvent(m.body); err != nil || m.event.Type != events.WebhookTest ||
		!strings.Contains(string(m.event.Data), `"by":"ada"`) {
		t.Errorf("delivered %s: %v", m.body, err)
	}
}

// TestOtherAnswersAreNoDelivery has endpoints answer wrongly. Errors show nothing of the URL but its host.
func TestOtherAnswersAreNoDelivery(t *testing.T) {
	t.Parallel()
	var led atomic.Int32
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	t.Cleanup(elsewhere.Close)
	release := make(chan struct{})
	handlers := map[string]struct {
		handler  http.HandlerFunc
		distrust bool
		want     string
	}{
		"an error": {handler: func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}, want: "answered 418 I'm a teapot"},
		"a status of its own": {handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(599) },
			want: "answered 599"},
		"a redirect": {handler: func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, elsewhere.URL, http.StatusTemporaryRedirect)
		}, want: "redirects are not followed"},
		"silence": {handler: func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // or the end of the connection is not seen
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}, want: "no answer within 1s"},
		"an unknown certificate": {handler: func(http.ResponseWriter, *http.Request) { led.Add(1) }, distrust: true,
			want: "certificate"},
		"large headers": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 1<<20))
		}, want: "header"},
		"an end in the middle": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want: "EOF"},
	}
	t.Cleanup(func() { close(release) })
	for name, tt := range handlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(tt.handler)
			s.EnableHTTP2 = false
			s.StartTLS()
			t.Cleanup(s.Close)
			roots := pool(s)
			if tt.distrust {
				roots = x509.NewCertPool()
			}
			within := answered
			if name == "silence" {
				within = time.Second
			}
			a := try(t, strings.Replace(s.URL, "https://", "https://hush:hush@", 1)+"/hush?hush=hush", roots, within)
			if !strings.Contains(a.Cause, tt.want) || strings.Contains(a.Cause, "hush") || len(a.Cause) > 256 {
				t.Errorf("cause %q, want %q", a.Cause, tt.want)
			}
			if led.Load() != 0 {
				t.Error("a request went where it should not")
			}
		})
	}
}

// TestLargeAnswerIsCutShort has an endpoint that answers without an end.
func TestLargeAnswerIsCutShort(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	if a := try(t, s.URL, pool(s), answered); a.Cause != "" || len(a.Body) != 1024 {
		t.Errorf("read %d bytes, %q", len(a.Body), a.Cause)
	}
	<-ended // its connection was closed
}

// TestMissingEndpoint asks an endpoint that is gone, and a webhook that is not configured.
func TestMissingEndpoint(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if a := try(t, "https://"+address, nil, answered); a.Status != 0 || !strings.Contains(a.Cause, "refused") {
		t.Errorf("answer %+v", a)
	}
	set, err := webhook.New(nil, events.NewAlarms(events.AlarmConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Test(context.Background(), "pager", "ada"); !errors.Is(err, events.ErrUnknownWebhook) {
		t.Errorf("Test = %v", err)
	}
}
