package console_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"muster/provisioner"
)

// TestTheHeaderOfALivePageIsAnsweredAtOnce asks for the header of a stream alone.
func TestTheHeaderOfALivePageIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "vera", provisioner.RoleViewer)
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	// Over HTTP/1.1 the connection is given back when the handler has ended.
	one := v.http.Transport.(*http.Transport).Clone()
	one.ForceAttemptHTTP2, one.MaxConnsPerHost, one.TLSClientConfig.NextProtos = false, 1, []string{"http/1.1"}
	t.Cleanup(one.CloseIdleConnections)
	v.http.Transport = one
	for range 2 {
		if a := v.do(v.request(http.MethodHead, "/live", nil).WithContext(ctx)); a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %q", a.status, a.header.Get("Content-Type"))
		}
	}
}

// TestAnAssetIsSentOnce asks for what pages are made of as a browser does that has it: it is
// asked for each time, and sent where it is another one.
func TestAnAssetIsSentOnce(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := stranger(t, f, nil)
	tags := make(map[string]string)
	for _, path := range []string{"/assets/style.css", "/assets/live.js", "/assets/icon.svg"} {
		a := v.get(path)
		tag := a.header.Get("ETag")
		if a.status != http.StatusOK || a.body == "" || tag == "" || a.header.Get("Cache-Control") != "no-cache" || tags[tag] != "" {
			t.Fatalf("%s: %d, %v, want a tag that no other one has", path, a.status, a.header)
		}
		tags[tag] = path
		for known, want := range map[string]int{tag: http.StatusNotModified, `"another"`: http.StatusOK} {
			r := v.request(http.MethodGet, path, nil)
			r.Header.Set("If-None-Match", known)
			if again := v.do(r); again.status != want || (again.body == "") != (want == http.StatusNotModified) || again.header.Get("ETag") != tag {
				t.Errorf("%s for who has %s: %d with %d bytes, %v, want %d", path, known, again.status, len(again.body), again.header, want)
			}
		}
	}
}
