package httpapi_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestHeadIsAnsweredAtOnce asks each route that can be read for its header alone, as monitors
// and `curl -I` do. One that has no end is not waited for.
func TestHeadIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	admin := certified(t, f, "anna", provisioner.RoleAdmin)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: admin.Roots, Certificates: []tls.Certificate{*admin.Certificate}, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	fill := strings.NewReplacer("{identity}", "web1.example.net", "{tid}", string(f.Record("web1.example.net").Token))
	for _, pattern := range httpapi.Routes() {
		path, ok := strings.CutPrefix(pattern, "GET ")
		if !ok {
			continue
		}
		r, err := http.NewRequestWithContext(f.Context(), http.MethodHead, f.Daemon().APIURL()+fill.Replace(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if path == "/v1/inputs" {
			r.URL.RawQuery = "age=1h"
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Errorf("HEAD %s: %v", path, err)
			continue
		}
		if err := resp.Body.Close(); err != nil {
			t.Errorf("HEAD %s: %v", path, err)
		}
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" {
			t.Errorf("HEAD %s: %d %q", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
	// A stream of HTTP/2 whose header has come may go on: over HTTP/1.1 the connection would
	// not be given back before its handler has ended.
	one := &http.Transport{TLSClientConfig: transport.TLSClientConfig.Clone(), MaxConnsPerHost: 1}
	one.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Cleanup(one.CloseIdleConnections)
	for range 2 {
		r, err := http.NewRequestWithContext(f.Context(), http.MethodHead, f.Daemon().APIURL()+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := one.RoundTrip(r)
		if err != nil {
			t.Fatalf("the header of events again, over the same connection: %v", err)
		}
		_ = resp.Body.Close()
	}
	if strings.Contains(f.Log(), "events cut off") || strings.Contains(f.Log(), "inputs not read") {
		t.Error("who asked for a header is said to have been cut off")
	}
}
