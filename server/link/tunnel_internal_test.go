package link

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzTunnel has a proxy answer with any bytes: the connection is the broker's after a plain
// yes and nothing behind it, and no error shows the password.
func FuzzTunnel(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 502 \x1b[31mBad\r\n\r\n", "SSH-2.0-x\r\n", ""} {
		f.Add([]byte(s))
	}
	proxy := &url.URL{Scheme: "http", Host: "proxy.test:3128", User: url.UserPassword("anna", "s3cret")}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		go func() {
			defer func() { _ = theirs.Close() }()
			if r, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil || r.Method != http.MethodConnect {
				return // tunnel says that it heard nothing
			}
			_, _ = theirs.Write(b)
		}()
		err := tunnel(t.Context(), ours, proxy, "broker.test:443")
		_ = ours.Close()
		if err != nil {
			if text := err.Error(); strings.Contains(text, "s3cret") || !strings.Contains(text, proxy.Host) {
				t.Fatalf("%q: %q", b, text)
			}
			return
		}
		_, behind, whole := bytes.Cut(b, []byte("\n\r\n"))
		if !whole {
			_, behind, whole = bytes.Cut(b, []byte("\n\n"))
		}
		if !whole || !bytes.HasPrefix(b, []byte("HTTP/")) || !bytes.Contains(b[:min(len(b), 20)], []byte("200")) {
			t.Fatalf("%q is a yes, with %q behind it", b, behind)
		}
	})
}
