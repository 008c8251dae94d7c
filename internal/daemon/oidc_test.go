package daemon_test

import (
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/provisioner/login"
	"muster/provisioner/trust"
)

func TestMistakesInOIDCAreListedAtOnce(t *testing.T) {
	t.Parallel()
	var cfg daemon.Config
	cfg.OIDC = login.Settings{Issuer: "http://sso.example.net",
		Roles: map[string]login.GroupRole{"a": {Role: "root"}, "b": {Role: trust.RoleForeman}, "c": {Role: trust.RoleViewer},
			"d": {Role: trust.RoleAdmin, Sites: trust.Sites{"ams1"}}, "e": {Role: trust.RoleViewer, Sites: trust.Sites{}}}}
	err := cfg.Validate()
	for _, want := range []string{`oidc.issuer: is "http://sso.example.net", want the https:// URL`,
		"oidc.issuer: set without api.listen", "oidc.client_id: missing", "oidc.client_secret_file: missing",
		`oidc.roles: "a" has "root"`, `oidc.roles: "b" has "foreman"`,
		`oidc.roles: "d" has "admin": sites for the role admin`, `oidc.roles: "e" has "viewer": 0 sites`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), `"c"`) {
		t.Errorf("a good role: %v", err)
	}
	cfg.OIDC = login.Settings{ClientID: "muster"}
	if err := cfg.Validate(); !strings.Contains(err.Error(), "oidc.roles: missing") {
		t.Errorf("without roles: %v", err)
	}
	cfg.OIDC = login.Settings{}
	if err := cfg.Validate(); strings.Contains(err.Error(), "oidc") {
		t.Errorf("without OpenID Connect: %v", err)
	}
}
