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
