package migrate_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/migrate"
	"muster/internal/setup"
	"muster/internal/wire"
	"muster/jwt"
)

// plan reads a configuration of Choria's provisioner.
func plan(t *testing.T, text string) *migrate.Plan {
	t.Helper()
	path := filepath.Join(t.TempDir(), "choria-provisioner.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := migrate.Choria(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// setting returns a setting of a plan.
func setting(t *testing.T, p *migrate.Plan, key string) migrate.Setting {
	t.Helper()
	i := slices.IndexFunc(p.Settings, func(s migrate.Setting) bool { return s.Key == key })
	if i < 0 {
		t.Fatalf("no setting %s", key)
	}
	return p.Settings[i]
}

const organization = "e72cba5268b34627b75c5ceae9449ad16d62f15f862c30d4e0e7d2588e2e6259"

// TestSetupOfAPlanIsValid makes setups with what is kept, and has the provisioner read them.
func TestSetupOfAPlanIsValid(t *testing.T) {
	t.Parallel()
	helper := filepath.Join(t.TempDir(), `a "helper"`)
	if err := os.WriteFile(helper, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "",
		"X.509": "helper: \"'" + strings.ReplaceAll(helper, `"`, `\"`) + "' -v\"\nsite: ams1\nmonitor_port: 8080\n" +
			"features: {pki: true}\ncert_deny_list: ['x\\.example\\.net$']\njwt_verify_cert: " + organization + "\n",
		"issuer": "features: {ed25519: true}\njwt_signing_key: a.seed\njwt_signing_token: a.jwt\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan(t, text)
			dir := filepath.Join(t.TempDir(), "prov")
			s := setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net", Site: p.Site, Choria: p.Choria}
			if err := setup.Init(dir, s); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "provisioner.yaml")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := daemon.ReadConfig(path); err == nil || strings.Contains(err.Error(), "\n") ||
				!strings.HasSuffix(err.Error(), "choria.brokers: missing") {
				t.Errorf("with brokers to do: %v", err)
			}
			b = []byte(strings.Replace(string(b), "# brokers: [nats", "brokers: [nats", 1))
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := daemon.ReadConfig(path)
			if err != nil {
				t.Fatal(err)
			}
			if issuer := cfg.Choria.Issuer.Seed != ""; len(cfg.Choria.Collectives) > 0 == issuer {
				t.Errorf("collectives %q", cfg.Choria.Collectives) // those of X.509, for nodes with server JWTs too
			}
			if name != "X.509" {
				return
			}
			if !slices.Equal(cfg.Configuration.Helper, []string{helper, "-v"}) || cfg.Configuration.Template != "" ||
				cfg.Site != "ams1" || cfg.Health.Listen != ":8080" || !cfg.Health.Metrics || len(cfg.Reserved) != 2 {
				t.Errorf("the configuration is %+v", cfg)
			}
			public, err := os.ReadFile(cfg.Tokens.Signers[1].File)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jwt.ParseSigner(public); err != nil {
				t.Errorf("signer %s: %v", public, err)
			}
		})
	}
}

// TestSignerIsTheKeyOfTheCertificate: Choria does not look at the certificate's end, as muster would.
func TestSignerIsTheKeyOfTheCertificate(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	expired := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, expired, expired, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "verify.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	p := plan(t, "jwt_verify_cert: "+path+"\n")
	signer, err := jwt.ParseSigner(p.Choria.Signer)
	if err != nil || !key.PublicKey.Equal(signer.Key) || !signer.NotAfter.IsZero() {
		t.Errorf("signer %+v, %v", signer, err)
	}
	if got := setting(t, p, "jwt_verify_cert"); got.Result != migrate.Kept || got.Line != 1 {
		t.Errorf("%+v", got)
	}
}

func TestHelperIsSplitAsByAShell(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		`prog`: {"prog"}, `prog  -a b`: {"prog", "-a", "b"}, `prog "a b" 'c "d"'`: {"prog", "a b", `c "d"`},
		`prog a\ b --x="y z"`: {"prog", "a b", "--x=y z"}, `prog '' ""`: {"prog", "", ""},
	} {
		p := plan(t, "helper: '"+strings.ReplaceAll(command, "'", "''")+"'\n")
		if !slices.Equal(p.Choria.Helper, want) {
			t.Errorf("%s: %q, want %q", command, p.Choria.Helper, want)
		}
	}
}

// TestEverySettingIsAnswered has a value for each key that Choria's provisioner reads.
func TestEverySettingIsAnswered(t *testing.T) {
	t.Parallel()
	keys := []string{"workers", "interval", "logfile", "loglevel", "helper", "token", "lifecycle_component", "choria_insecure",
		"site", "monitor_port", "broker_port", "broker_provisioning_password", "jwt_verify_cert", "jwt_signing_key",
		"jwt_signing_token", "server_jwt_validity", "rego_policy", "leader_election", "upgrades_repository",
		"upgrades_optional", "features.pki", "features.ed25519", "features.jwt", "features.upgrades"}
	for _, features := range []string{"{pki: true, ed25519: false, jwt: true, upgrades: true}",
		"{pki: false, ed25519: true, jwt: true, upgrades: false}"} {
		p := plan(t, `{workers: 4, interval: 1m, logfile: a, loglevel: info, helper: a, token: hush-hush, choria_insecure: true,
			lifecycle_component: a, site: a, monitor_port: 80, broker_port: 1, broker_provisioning_password: hush-hush,
			jwt_verify_cert: a, jwt_signing_key: `+strings.Repeat("hush", 2000)+`, jwt_signing_token: hush-hush, server_jwt_validity: 1y, rego_policy: a,
			leader_election: true, upgrades_repository: a, upgrades_optional: true, features: `+features+"}\n")
		for _, key := range keys {
			if got := setting(t, p, key); got.Line == 0 || got.Note == "" || got.Result == "" {
				t.Errorf("%s: %+v", key, got)
			}
		}
		if text := fmt.Sprint(p.Settings); strings.Contains(text, "hush") {
			t.Errorf("a secret is in %s", text)
		}
	}
}

// TestIssuerIsJudgedAsTheGatewayDoes: server JWTs come from a chain issuer without permissions in the fleet.
func TestIssuerIsJudgedAsTheGatewayDoes(t *testing.T) {
	t.Parallel()
	_, organization, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, issuer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := func(permissions string) string {
		key := hex.EncodeToString(public)
		claims := fmt.Sprintf(`{"purpose":"choria_client_id","public_key":%q,"jti":"1","iss":"I-%x","tcs":"%x","permissions":%s}`,
			key, organization.Public(), ed25519.Sign(organization, []byte("1."+key)), permissions)
		return write("issuer.jwt", "e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".e30")
	}
	seed := write("issuer.seed", hex.EncodeToString(issuer.Seed()))
	for name, test := range map[string]struct {
		seed, token string
		want        migrate.Result
	}{
		"chain issuer":           {seed, token(`{}`), migrate.Kept},
		"manager of the fleet":   {seed, token(`{"fleet_management":true,"provisioner":true}`), migrate.Todo},
		"another key":            {write("other.seed", strings.Repeat("0", 64)), token(`{}`), migrate.Todo},
		"the organization's key": {seed, "", migrate.Todo},
		"no token":               {seed, "missing.jwt", migrate.Todo},
	} {
		p := plan(t, fmt.Sprintf("features: {ed25519: true}\njwt_signing_key: %s\njwt_signing_token: %q\n", test.seed, test.token))
		if got := setting(t, p, "jwt_signing_token"); got.Result != test.want {
			t.Errorf("%s: %+v", name, got)
		}
		if (p.Choria.IssuerSeed == "") != (test.token == "") {
			t.Errorf("%s: the seed is %q", name, p.Choria.IssuerSeed)
		}
	}
}

// TestPatternsMatchWhatTheExpressionMatches compares them on every name of up to three of these labels.
func TestPatternsMatchWhatTheExpressionMatches(t *testing.T) {
	t.Parallel()
	labels := []string{"a", "b", "ab", "ba", "abc", "a-b", "x1"}
	var names []string
	for _, one := range labels {
		names = append(names, one)
		for _, two := range labels {
			names = append(names, one+"."+two)
			for _, three := range labels {
				names = append(names, one+"."+two+"."+three)
			}
		}
	}
	exact := map[string]string{
		`\.a\.b$`:         "[**.a.b]",
		`/\.a\.b$/`:       "[**.a.b]",
		`^a\.b$`:          "[a.b]",
		`b\.ab$`:          "[*b.ab **.*b.ab]",
		`b$`:              "[*b **.*b]",
		`^.*\.ab$`:        "[**.ab]",
		`.+\.ab$`:         "[**.ab]",
		`^.*b\.a$`:        "[*b.a **.*b.a]",
		`^a[^.]*\.b$`:     "[a*.b]",
		`^a[a-z0-9-]+\.b`: "[]",
		`^[^.]+\.b\.a$`:   "[?*.b.a]",
		`^a[^.]+\.b$`:     "[a?*.b]",
		`^[^.]b\.a$`:      "[?b.a]",
		`(?i)\.a\.b$`:     "[]",
		`\.a.b$`:          "[]", // the second dot is any character
		`^a`:              "[]",
		`a`:               "[]",
		`^.+b$`:           "[]",
		`^a.*\.b$`:        "[]",
		`^[^.]*$`:         "[]", // as a pattern, * covers every name
		`^a\d\.b$`:        "[]",
		`^(a|b)\.a$`:      "[]",
		`(?m)\.b$`:        "[]",
		`\.A$`:            "[]",
		`\.1$`:            "[]",
		`$`:               "[]",
		`^$`:              "[]",
		`^\w+\.b$`:        "[]",
		`[^.]*b\.a$`:      "[]",
		`a*\.b$`:          "[]",
		`^a{2}\.b$`:       "[]",
		`^[a-z]\.b$`:      "[]",
		``:                "[]",
		`\.b\.?$`:         "[]",
	}
	for expr, want := range exact {
		patterns := migrate.Patterns(expr)
		if got := fmt.Sprint(patterns); got != want {
			t.Errorf("%s: patterns %s, want %s", expr, got, want)
		}
		re := regexp.MustCompile(strings.Trim(expr, "/"))
		for _, name := range names {
			matched := slices.ContainsFunc(patterns, func(p wire.Pattern) bool { return p.Match(wire.Identity(name)) })
			if patterns != nil && matched != re.MatchString(name) {
				t.Errorf("%s and %s: the patterns match: %v", expr, name, matched)
			}
		}
	}
}
