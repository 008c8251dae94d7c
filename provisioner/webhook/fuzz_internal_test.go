package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzAnswer has an endpoint answer with any bytes. Nothing but a status of 2xx is a
// delivery, what is said of it is bounded text without the URL's secret, and no answer
// puts an event off for more than an hour.
func FuzzAnswer(f *testing.F) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	f.Add([]byte(ok))
	f.Add([]byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n\x1b[31m\xff"))
	f.Add([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"))
	f.Add([]byte("\x00\x00\x12\x04\x00\x00\x00\x00\x00"))
	answers := make(chan []byte, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b := <-answers
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = conn.Write(b)
			_ = conn.(*tls.Conn).CloseWrite()
			_ = conn.Close()
		}
	}))
	s.StartTLS()
	f.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	const secret = "s3cret-path"
	e, err := newEndpoint(&Config{URL: "https://127.0.0.1:" + port + "/" + secret, Timeout: 10 * time.Second, Roots: roots, Now: time.Now})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		answers <- b
		a, asked := e.post(t.Context(), "id", []byte("{}"))
		select {
		case <-answers: // the connection of before had ended, and this was not sent
		default:
		}
		if (a.Cause == "") != (a.Status >= 200 && a.Status <= 299) {
			t.Fatalf("%q is status %d, cause %q", b, a.Status, a.Cause)
		}
		if asked < 0 || asked > time.Hour {
			t.Fatalf("%q puts it off for %v", b, asked)
		}
		if len(a.Body) > maxAnswerBytes || !utf8.ValidString(a.Body) || len(a.Cause) > maxCauseBytes || !utf8.ValidString(a.Cause) || strings.Contains(a.Cause, secret) {
			t.Fatalf("%q: body of %d bytes, cause %q", b, len(a.Body), a.Cause)
		}
	})
}
