package httpapi_test

import (
	"crypto"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// keptOut asks who we are and returns what the answer says, which is in one line;
// empty if we are somebody.
func keptOut(t *testing.T, f *testbed.Fleet, c *httpapi.Client, status int) string {
	t.Helper()
	err := c.Do(f.Context(), http.MethodGet, "/v1/self", nil, nil)
	if err == nil {
		return ""
	}
	var p *httpapi.Problem
	if errors.As(err, &p) && (p.Status != status || p.Remedy == "") || p == nil && status != 0 || strings.Contains(err.Error(), "\n") {
		t.Errorf("refused by %v, want one line and status %d", err, status)
	}
	return err.Error()
}

// TestTokensOfClocksThatAreWrong has operators sign tokens on machines whose
// clocks differ from the provisioner's.
func TestTokensOfClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	f := served(t)
	key, public := newKey(t)
	call(t, f, http.MethodPost, "/v1/operators", httpapi.AddOperator{NewOperator: provisioner.NewOperator{Name: "anna", Role: provisioner.RoleAdmin, Public: public}}, nil)
	signed := func(key crypto.Signer, ahead, ttl time.Duration) string {
		t.Helper()
		at := f.Clock.Now().Add(ahead)
		text, err := jwt.SignOperator(key, jwt.OperatorClaims{Operator: "anna", Audience: f.Daemon().Store().Installation().ID, ID: wire.NewID(), IssuedAt: at, ExpiresAt: at.Add(ttl)})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	stranger, _ := newKey(t)
	for _, tt := range []struct {
		ahead, ttl time.Duration
		says       string
	}{
		{0, 15 * time.Minute, ""},
		{-5 * time.Minute, 15 * time.Minute, ""},
		{-5 * time.Minute, 5 * time.Minute, "it ended "},
		{5 * time.Minute, 15 * time.Minute, "it begins "},
		{year, 15 * time.Minute, "it begins "},
		{-year, 15 * time.Minute, "it ended "},
	} {
		if got := keptOut(t, f, remote(t, f, roots(t, f), signed(key, tt.ahead, tt.ttl)), http.StatusUnauthorized); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
			t.Errorf("a clock %v ahead: %q, want %q", tt.ahead, got, tt.says)
		}
		if got := keptOut(t, f, remote(t, f, roots(t, f), signed(stranger, tt.ahead, tt.ttl)), http.StatusUnauthorized); got == "" || strings.Contains(got, "here it is") {
			t.Errorf("a stranger's with a clock %v ahead: %q", tt.ahead, got)
		}
	}
}

// TestCertificatesOfClocksThatAreWrong shows an operator's certificate before and
// after its time, and to a provisioner whose clock is wrong.
func TestCertificatesOfClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	f := served(t)
	says := func(when string, c httpapi.Credential, status int, want string) {
		t.Helper()
		if got := keptOut(t, f, remote(t, f, c, ""), status); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	anna := certified(t, f, "anna", provisioner.RoleViewer)
	says("at its time", anna, 0, "")
	f.Clock.Advance(5 * time.Minute)
	says("5 minutes later", anna, 0, "")
	f.Clock.Advance(-5 * time.Minute)
	says("when they were taken back", anna, 0, "")
	f.Clock.Advance(-10 * time.Minute)
	says("with the clock 10 minutes behind", anna, http.StatusServiceUnavailable, "clock is behind")
	f.Clock.Advance(10*time.Minute - year)
	says("with the clock a year behind", anna, http.StatusServiceUnavailable, "clock is behind")
	f.Clock.Advance(year + 29*day)
	says("a month later", anna, 0, "")
	f.Clock.Advance(2 * day)
	says("when it is over", anna, http.StatusUnauthorized, "the certificate ended ")
	ben := certified(t, f, "ben", provisioner.RoleViewer) // while the clock is ahead
	f.Clock.Advance(-31 * day)
	says("when the jump was taken back", anna, 0, "")
	says("of the time of the jump", ben, http.StatusUnauthorized, "the certificate begins ")
	f.Clock.Advance(year)
	says("a year ahead", anna, http.StatusUnauthorized, "the certificate ended ")
}

// TestOperatorsClocksThatAreWrong has the clock of an operator's machine be a year
// off: the provisioner's certificate is not good by it.
func TestOperatorsClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	f := served(t)
	anna := certified(t, f, "anna", provisioner.RoleViewer)
	for ahead, good := range map[time.Duration]bool{-5 * time.Minute: true, 5 * time.Minute: true, -year: false, year: false} {
		c, err := httpapi.NewRemote(f.Daemon().APIURL(), anna, "")
		if err != nil {
			t.Fatal(err)
		}
		c.Observe(func(connections http.RoundTripper) http.RoundTripper {
			connections.(*http.Transport).TLSClientConfig.Time = func() time.Time { return time.Now().Add(ahead) }
			return connections
		})
		if got := keptOut(t, f, observed(c), 0); (got == "") != good || !good && !strings.Contains(got, "set the clock that is wrong") {
			t.Errorf("a clock %v ahead: %q", ahead, got)
		}
	}
}
