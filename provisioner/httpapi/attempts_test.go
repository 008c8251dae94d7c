package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
)

// TestFailedAttemptsAreCounted has a rogue, a good token for a name that is
// taken, and a stranger whom the gate keeps out.
func TestFailedAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	f.Enroll(f.Node("web1.example.net"))
	f.Refused(f.Node("web1.example.net"))
	rogue := f.Node("web2.example.net")
	nc := f.Dial(rogue.Token)
	rogue.Token = "forged"
	const times = 30 // more than are reported
	for range times {
		if r, err := requestOver(f, nc, rogue); err != nil || r.Refusal == nil {
			t.Fatalf("a forged token: %v, %v", r, err)
		}
	}
	var a httpapi.Attempts
	call(t, f, http.MethodGet, "/v1/attempts?top=5", nil, &a)
	if len(a.Sources) != 1 || len(a.Tokens) != 1 {
		t.Fatalf("attempts %+v", a)
	}
	s, k := a.Sources[0], a.Tokens[0]
	if s.Source != "127.0.0.1" || s.Count != times+1 || s.Codes[wire.CodeIdentityTaken] != 1 || s.Codes[wire.CodeTokenInvalid]+s.Codes[wire.CodeSourceLimited] != times || s.First.IsZero() || s.Last.IsZero() {
		t.Errorf("source %+v", s)
	}
	if len(k.Token) != 32 || k.Count != 1 || k.Codes[wire.CodeIdentityTaken] != 1 {
		t.Errorf("token %+v", k)
	}
	e := f.Events()
	if last := e[len(e)-1]; last.OfSource < 2 {
		t.Errorf("last event %+v", last)
	}
	if p := refused(t, f, http.MethodGet, "/v1/attempts?top=none", nil); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "top") {
		t.Errorf("a mistake: %+v", p)
	}
}
