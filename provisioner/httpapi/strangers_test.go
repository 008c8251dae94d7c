package httpapi_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
)

// TestStrangersDoNotFillTheLog has somebody without a credential ask for what there is not, and
// for what there is in a way that is wrong, and connect without TLS, as port scanners do.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	f := served(t)
	nobody := remote(t, f, roots(t, f), "")
	for path, body := range map[string]any{
		"/v1/crl.der?nosuch=1": nil, "/healthz": map[string]int{strings.Repeat("x", 30_000): 1}, "/v1/nosuch": nil, "/nosuch" + strings.Repeat("x", 10_000): nil,
		"/assets/nosuch": nil, "/v1/nodes": nil,
	} {
		if status(t, f, nobody, http.MethodGet, path, body) < http.StatusBadRequest {
			t.Errorf("GET %.80s is answered", path)
		}
	}
	const scans = 400
	at := strings.TrimPrefix(f.Daemon().APIURL(), "https://")
	begun := time.Now()
	for range scans {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "no TLS at all\r\n\r\n"); err == nil {
			_, _ = io.Copy(io.Discard, c) // until it is cut off, which follows the line in the log
		}
		_ = c.Close()
	}
	allowed, lines := 100+20*int(time.Since(begun).Seconds()+1), 0
	for line := range strings.Lines(f.Log()) {
		if strings.Contains(line, "TLS handshake error") {
			lines++
		}
		if strings.Contains(line, "operator's request failed") && !strings.Contains(line, `"level":"DEBUG"`) || len(line) > 4000 {
			t.Errorf("in the log, %d bytes: %.300s", len(line), line)
		}
	}
	if lines == 0 || lines > allowed || allowed < scans && lines == scans {
		t.Errorf("%d lines about %d connections without TLS, want %d at most", lines, scans, allowed)
	}
}

// heap returns how much memory is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// stalled asks for a path so many times over HTTP/2 (RFC 9113), without room for any of the
// answers, and returns the connection once each has begun.
func stalled(t *testing.T, f *testbed.Fleet, path string, streams int) net.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(f.Daemon().APIURL(), "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	frame := func(kind, flags byte, stream int, payload []byte) []byte {
		return append([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, byte(stream)}, payload...)
	}
	const settings, headers, endOfBoth = 4, 1, 5
	hello := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, []byte{0, 4, 0, 0, 0, 0})...) // a window of 0
	// Indexed fields of the static table (RFC 7541 appendix A): GET, https; and two literals.
	fields := append([]byte{0x82, 0x87, 0x04, byte(len(path))}, path...)
	fields = append(append(fields, 0x01, 1), 'x')
	for i := range streams {
		hello = append(hello, frame(headers, endOfBoth, 2*i+1, fields)...)
	}
	if _, err := c.Write(hello); err != nil {
		t.Fatal(err)
	}
	for begun := 0; begun < streams; {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			t.Fatal(err)
		}
		if head[3] == headers {
			begun++
		}
	}
	return c
}
