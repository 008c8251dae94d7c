package httpapi_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestStrangersDoNotFillTheLog sends requests without a credential, for missing routes and with faults, and connects
// without TLS as port scanners do.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	f := served(t)
	nobody := remote(t, f, roots(t, f), "")
	for path, body := range map[string]any{
		"/v1/crl.der?nosuch=1": nil, "/v1/nosuch": nil, "/nosuch" + strings.Repeat("x", 10_000): nil,
		"/assets/nosuch": nil, "/v1/nodes": nil,
	} {
		if status(t, f, nobody, http.MethodGet, path, body) < http.StatusBadRequest {
			t.Errorf("GET %.80s is answered", path)
		}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(f.Daemon().APIURL(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "no TLS at all\r\n\r\n"); err == nil {
		_, _ = io.Copy(io.Discard, c) // until it is cut off, which follows the line in the log
	}
	_ = c.Close()
	for line := range strings.Lines(f.Log()) {
		stranger := strings.Contains(line, "operator's request failed") || strings.Contains(line, "TLS handshake error")
		if stranger && !strings.Contains(line, `"level":"DEBUG"`) || len(line) > 4000 {
			t.Errorf("in the log, %d bytes: %.300s", len(line), line)
		}
	}
}
