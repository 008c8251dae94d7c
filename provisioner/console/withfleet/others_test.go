package console_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/console"
	"muster/provisioner/fleet"
)

// TestOthersAreShown has the overview say what other parts of the program know.
func TestOthersAreShown(t *testing.T) {
	t.Parallel()
	f := served(t)
	store := f.Daemon().Store()
	c, err := console.New(console.Config{
		Provisioner: f.Daemon().Operator(), Fleet: fleet.NewIndex(store, nil, nil), Events: store, Now: f.Clock.Now,
		Alarms: func() []provisioner.Alarm {
			return []provisioner.Alarm{{Code: "storage_low", Cause: "3 MB are left", Since: f.Clock.Now()}}
		},
		Components: func(context.Context) ([]console.Component, error) {
			return []console.Component{
				{Name: "prov1.example.net", Seen: f.Clock.Now(), Features: []console.Feature{{Name: "policy", State: "failed", Why: markup}, {Name: "ca", State: "running"}},
					Refused: map[wire.Code]int{wire.CodeDenied: 1234}, Alarms: []provisioner.Alarm{{Code: "webhook_failed", Cause: "no answer", Since: f.Clock.Now()}}},
				{Name: "prov2.example.net", Seen: f.Clock.Now().Add(-time.Hour), Gone: true, Refused: map[wire.Code]int{wire.CodeDenied: 7}},
			}, nil
		},
		Webhooks: func(context.Context) ([]console.Webhook, error) {
			return []console.Webhook{{Name: "pager", Delivered: 1234, Failing: "502"}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, certificate := added(t, f, "anna", provisioner.RoleViewer, true)
	leaf, err := tlsState(certificate)
	if err != nil {
		t.Fatal(err)
	}
	// The list of nodes is not there yet: the page says so, and is there.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.TLS = leaf
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	says(t, w.Body.String(), "still reads the records", "storage_low", "3 MB are left", "prov1.example.net", ">failed<", "&lt;script&gt;", "gone, last heard of", "webhook_failed", "on prov1.example.net", ">1\u202f234</td>", "1\u202f234 refused", "pager", "1\u202f234 delivered", "502")
}

// tlsState returns the state of a connection over which a certificate was shown.
func tlsState(c *tls.Certificate) (*tls.ConnectionState, error) {
	chain, err := parsed(c)
	return &tls.ConnectionState{PeerCertificates: chain}, err
}

// TestRefusalsAreCountedEachTime has a machine come three times for a name that is
// another's: an event says so once, and the overview counts as `muster status` does.
func TestRefusalsAreCountedEachTime(t *testing.T) {
	t.Parallel()
	f := served(t)
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	another := f.Node("web1.example.net")
	for range 3 {
		f.Refused(another)
	}
	v := signedIn(t, f, "anna", provisioner.RoleViewer)
	counted := regexp.MustCompile(`(?s)>identity_taken</a></th>.{0,400}?<td class="count">3</td>`)
	f.Eventually("all three are counted", func() bool {
		page := v.see("/")
		return counted.MatchString(page) && strings.Contains(page, "3 refused")
	})
}
