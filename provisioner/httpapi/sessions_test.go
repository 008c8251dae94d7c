package httpapi_test

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

const issuer = "https://sso.example.net" // asked by no test here

// signedIn returns a fleet, and sign, by which a person of a role is signed in: the token and the id of the session.
func signedIn(t *testing.T) (*testbed.Fleet, func(name string, role trust.OperatorRole, challenge string) (string,
	string)) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.OIDC = login.Settings{Issuer: issuer, ClientID: "muster", ClientSecretFile: secret,
			Roles: map[string]login.GroupRole{"all": {Role: trust.RoleViewer}}}
	}})
	return f, func(name string, role trust.OperatorRole, challenge string) (token, id string) {
		t.Helper()
		log, text := f.Daemon().Store().Logs().Sessions, ""
		s := orders.Session{ID: wire.NewID(), Name: "oidc:" + name, Role: role, Agent: "browser",
			Created: f.Clock.Now(), Expires: f.Clock.Now().Add(time.Hour)}
		text, _ = orders.NewSecret()
		s.Hash = wire.Sum([]byte(text + challenge))
		of := &orders.Sessions{Schema: orders.SessionSchema, Person: orders.PersonOf(issuer, name), Issuer: issuer}
		e, found := log.Get(of.Person)
		if found {
			of.Sessions = e.Value.Sessions
		}
		of.Sessions = append(of.Sessions, s)
		if _, err := log.Put(f.Context(), of.Person, of, e.Revision); err != nil {
			t.Fatal(err)
		}
		return "muster." + of.Person + "." + text, s.ID
	}
}

// TestSessionsAreListedAndEnded has an admin end the session of an operator.
func TestSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	f, sign := signedIn(t)
	anna, _ := sign("anna", trust.RoleAdmin, "")
	ben, benID := sign("ben", trust.RoleViewer, "")
	as := func(token string) *httpapi.Client { return remote(t, f, roots(t, f), token) }
	var self httpapi.Self
	if err := as(anna).Do(f.Context(), http.MethodGet, "/v1/self", nil, &self); err != nil ||
		!reflect.DeepEqual(self, httpapi.Self{By: "operator:oidc:anna", Role: trust.RoleAdmin, Expires: self.Expires}) ||
		!self.Expires.After(f.Clock.Now()) {
		t.Errorf("self: %+v, %v", self, err)
	}
	list := map[string][]orders.Session{}
	if err := as(ben).Do(f.Context(), http.MethodGet, "/v1/sessions", nil, &list); err != nil ||
		len(list["sessions"]) != 2 || list["sessions"][0].Hash != "" {
		t.Errorf("sessions: %+v, %v", list, err)
	}
	end := "/v1/sessions/" + benID + "/end"
	if got := status(t, f, as(ben), http.MethodPost, end, httpapi.Reason{Why: "a trick"}); got != http.StatusForbidden {
		t.Errorf("a viewer ends a session: %d", got)
	}
	if got := status(t, f, as(anna), http.MethodPost, end, httpapi.Reason{Why: "lost laptop"}); got != http.StatusOK {
		t.Errorf("an admin ends a session: %d", got)
	}
	if got := status(t, f, as(ben), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("after the end: %d", got)
	}
	if got := status(t, f, as(anna), http.MethodPost, end, httpapi.Reason{Why: "again"}); got != http.StatusNotFound {
		t.Errorf("ended again: %d", got)
	}
	for name, token := range map[string]string{
		"of another person":  "muster." + orders.PersonOf(issuer, "ben") + anna[len(anna)-44:],
		"another secret":     anna[:len(anna)-1] + "-",
		"one character more": anna + "A",
		"the hash":           "muster." + orders.PersonOf(issuer, "anna") + "." + wire.Sum([]byte("x"))[:43],
	} {
		if got := status(t, f, as(token), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	f.Clock.Advance(61 * time.Minute)
	if got := status(t, f, as(anna), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
		t.Errorf("after an hour: %d", got)
	}
}

// An end of a session may be among what a restored store lacks.
func TestSessionsFromBeforeARestoreAreRefused(t *testing.T) {
	t.Parallel()
	f, sign := signedIn(t)
	as := func(token string) int {
		return status(t, f, remote(t, f, roots(t, f), token), http.MethodGet, "/v1/self", nil)
	}
	before, _ := sign("anna", trust.RoleViewer, "")
	if got := as(before); got != http.StatusOK {
		t.Fatalf("before: %d", got)
	}
	r := &orders.Recovery{Schema: orders.RecoverySchema, Epoch: 1, Began: f.Clock.Now(), Cause: testbed.Operator()}
	if _, err := f.Daemon().Store().Logs().Recovery.Put(f.Context(), orders.RecoveryKey, r, 0); err != nil {
		t.Fatal(err)
	}
	after, _ := sign("ben", trust.RoleViewer, "")
	if old, fresh := as(before), as(after); old != http.StatusUnauthorized || fresh != http.StatusOK {
		t.Errorf("after a restore: %d for the session before, %d for one after", old, fresh)
	}
}

// TestACommandsSessionNeedsItsVerifier: what a browser carries to `muster login` is no credential.
func TestACommandsSessionNeedsItsVerifier(t *testing.T) {
	t.Parallel()
	f, sign := signedIn(t)
	verifier, _ := orders.NewSecret()
	guess, _ := orders.NewSecret()
	text, _ := sign("anna", trust.RoleViewer, login.Challenge(verifier))
	browsers, _ := sign("anna", trust.RoleViewer, "")
	for name, token := range map[string]string{
		"no verifier":                          text,
		"another verifier":                     text + guess,
		"the challenge as verifier":            text + login.Challenge(verifier),
		"a part of the verifier":               text + verifier[:42],
		"the verifier with a browser's text":   browsers + verifier,
		"the verifier twice":                   text + verifier + verifier,
		"the verifier and a point before that": text + "." + verifier,
	} {
		if got := status(t, f, remote(t, f, roots(t, f), token), http.MethodGet, "/v1/self", nil); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	for _, token := range []string{text + verifier, browsers} {
		if got := status(t, f, remote(t, f, roots(t, f), token), http.MethodGet, "/v1/self", nil); got != http.StatusOK {
			t.Errorf("the session: %d", got)
		}
	}
}
