package httpapi_test

import (
	"crypto"
	"net/http"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// signedBy returns a token of an operator.
func signedBy(t *testing.T, f *testbed.Fleet, key crypto.Signer, name string) string {
	t.Helper()
	now := f.Clock.Now()
	text, err := jwt.SignOperator(key,
		jwt.OperatorClaims{
			Operator:  name,
			Audience:  f.Daemon().Store().Installation().ID,
			ID:        wire.NewID(),
			IssuedAt:  now,
			ExpiresAt: now.Add(time.Hour),
		})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestOperatorsLogInByToken adds an operator by their key alone.
func TestOperatorsLogInByToken(t *testing.T) {
	t.Parallel()
	f, other := served(t), served(t)
	key, public := newKey(t)
	add := func(name string, role trust.OperatorRole, public []byte) {
		t.Helper()
		call(t, f, http.MethodPost, "/v1/operators",
			httpapi.AddOperator{NewOperator: operate.NewOperator{Name: name, Role: role, Public: public}}, nil)
	}
	add("anna", trust.RoleAdmin, public)
	bens, bensPublic := newKey(t)
	add("ben", trust.RoleViewer, bensPublic)
	ask := func(token string) int {
		t.Helper()
		return status(t, f, remote(t, f, roots(t, f), token), http.MethodGet, "/v1/self", nil)
	}
	good := signedBy(t, f, key, "anna")
	if got := ask(good); got != http.StatusOK {
		t.Errorf("anna: %d", got)
	}
	// A fleet's token is signed by a key without a right to operate the fleet.
	for name, token := range map[string]string{
		"of ben, who says that he is anna": signedBy(t, f, bens, "anna"),
		"for another installation":         signedBy(t, other, key, "anna"),
		"of nobody":                        signedBy(t, f, key, "carl"),
		"a provisioning token":             f.Token(nil),
	} {
		if got := ask(token); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	call(t, f, http.MethodPost, "/v1/operators/anna/remove", httpapi.Reason{}, nil)
	if got := ask(good); got != http.StatusUnauthorized {
		t.Errorf("of who was removed: %d", got)
	}
	if got := ask(signedBy(t, f, bens, "ben")); got != http.StatusOK {
		t.Errorf("ben: %d", got)
	}
	bensToken := signedBy(t, f, bens, "ben")
	if got := ask(bensToken); got != http.StatusOK {
		t.Errorf("ben again: %d", got)
	}
	f.Clock.Advance(2 * time.Hour)
	if got := ask(bensToken); got != http.StatusUnauthorized {
		t.Errorf("expired: %d", got)
	}
}

// TestFailedLoginsAreLimited fails to log in until all logins are refused. Successful logins do not count.
func TestFailedLoginsAreLimited(t *testing.T) {
	t.Parallel()
	f := served(t)
	nobody := remote(t, f, roots(t, f), "nonsense")
	limited := false
	for i := 0; i < 100_000 && !limited; i++ {
		limited = status(t, f, nobody, http.MethodGet, "/v1/self", nil) == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("100,000 failed logins were looked at")
	}
}
