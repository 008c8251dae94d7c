package console_test

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/internal/testbed"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// lacks fails the test if a page has a text that must not be shown.
func lacks(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page shows %q:\n%s", text, main(page))
		}
	}
}

// installed returns a fleet with a webhook whose address and key are secret, and a viewer of its console.
func installed(t *testing.T) (*testbed.Fleet, *visitor) {
	t.Helper()
	secret := written(t, t.TempDir(), "pager.secret", "whsec_"+strings.Repeat("A", 40)+"\n")
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.Webhooks = []daemon.WebhookConfig{{
			Name:   "pager",
			URL:    "https://hush-user:hush-word@hooks.example.net/hush-path?hush=1",
			Secret: secret,
			Events: []string{"alarm"},
		}}
		c.Waiting.Autosign.Command = []string{"/usr/bin/true", "hush-argument"}
	}})
	return f, signedIn(t, f, "vera", trust.RoleViewer)
}

// A viewer sees how the installation is run, and no secret of it.
func TestTheInstallationIsShown(t *testing.T) {
	t.Parallel()
	f, v := installed(t)
	added(t, f, "gone", trust.RoleOperator, true)
	if err := f.Daemon().Orders().Operators.Remove(f.Context(), "gone",
		trust.Cause{By: "operator:anna", Why: "left us " + markup}); err != nil {
		t.Fatal(err)
	}
	added(t, f, "certified", trust.RoleAdmin, true)
	added(t, f, "otto", trust.RoleOperator, true, "ams1")
	all, err := f.Daemon().Orders().Operators.List(f.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := all[slices.IndexFunc(all, func(o operate.OperatorInfo) bool { return o.Name == "certified" })]
	f.Daemon().Orders().Process.BackupBegun(trust.Cause{By: "operator:certified", Why: "every night"})

	index := v.see("/installation")
	for path, want := range map[string][]string{
		"/operators": {"certified", "admin", "viewer", known.Serial, known.Ends.Format(time.RFC3339), ">removed<",
			"anna", "left us", "ams1"},
		"/signers":    {">trusted<", "Ed25519"},
		"/authority":  {"root", "issuing", ">present<", f.Daemon().Orders().Process.Authority().Fingerprint, "/v1/crl.pem", "/v1/ca.pem"},
		"/webhooks":   {"pager", "https://hooks.example.net", "io.muster.alarm.raised", "no event yet"},
		"/components": {">running<", "enrollment", "No node is connected"},
	} {
		if !strings.Contains(index, `href="`+path+`"`) {
			t.Errorf("the index has no link to %s", path)
		}
		page := v.see(path)
		says(t, page, want...)
		lacks(t, page, "hush", "whsec_", "PRIVATE", "<script>alert", "/do/")
	}
	f.Eventually("the backup is listed", func() bool {
		return strings.Contains(v.see("/backups"), "every night")
	})
	n := f.Node("web1.example.net")
	f.Allow(n.Identity)
	e := f.Enroll(n)
	f.Apply(n, e)
	f.DialFleet(n, e)
	f.Eventually("the broker has one node", func() bool {
		return strings.Contains(v.see("/components"), `<td class="count">1</td>`)
	})
	if stranger(t, f, nil).get("/operators").status == 200 {
		t.Error("a stranger sees the operators")
	}
}

// While an authority is replaced, its page counts the certificates of each issuer.
func TestTheReplacementOfTheAuthorityIsFollowed(t *testing.T) {
	t.Parallel()
	f, v := installed(t)
	n := f.Node("web1.example.net")
	f.Allow(n.Identity)
	f.Apply(n, f.Enroll(n))
	lacks(t, v.see("/authority"), "In use by")
	roll := setup.Maker{Config: filepath.Join(f.Dir, "provisioner.yaml"), Now: f.Clock.Now}
	rolled, err := roll.Roll()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := rolled.Lines()
	if err != nil {
		t.Fatal(err)
	}
	f.Write("provisioner.yaml", regexp.MustCompile(`(?m)^ca:\n(?:[ #].*\n)*`).ReplaceAllLiteralString(
		f.Read("provisioner.yaml"), lines))
	f.Stop()
	f.Start()
	v = signedIn(t, f, "otto", trust.RoleViewer)
	says(t, v.see("/authority"), "In use by nodes and operators", ">previous<", `<td class="count">1</td>`, `<td class="count">0</td>`)
}

// All see which policy decides. Its text is for admins, without the values of secrets; they try an input, which changes
// nothing.
func TestThePolicyIsShownAndTried(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{
		Policy: `package muster.enroll
default allow := false
allow if startswith(input.identity, "web")
deny contains sprintf("not %s", [input.identity]) if not allow
configuration := {"plugin.security.password": "hush", "color": "<b>blue</b>", "identity": input.identity}
`,
		Edit: func(c *daemon.Config) {
			c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
			f := filepath.Join(filepath.Dir(c.Policy), "policy", "policy_test.rego")
			_ = os.WriteFile(f, []byte("package muster.enroll_test\ntest_web if data.muster.enroll.allow with "+
				"input as {\"identity\": \"web1\"}\n"), 0o600)
		},
	})
	f.Refused(f.Node("db1.example.net"))
	vera := signedIn(t, f, "vera", trust.RoleViewer)
	f.Eventually("the decision is listed", func() bool {
		return strings.Contains(vera.see("/policies"), `<a href="/nodes/db1.example.net">`)
	})
	lacks(t, vera.see("/policies"), "startswith", "Try an input", "policy.rego")
	if a := vera.post("/policies/try", "input", "identity: web1.example.net"); a.status != http.StatusForbidden {
		t.Errorf("a viewer tries an input: %d", a.status)
	}

	otto := signedIn(t, f, "otto", trust.RoleAuditor)
	says(t, otto.see("/policies"), "startswith(input.identity", "muster.enroll_test.test_web")
	lacks(t, otto.see("/policies"), "Try an input", "hush", "/do/")
	if a := otto.post("/policies/try", "input", "identity: web1.example.net"); a.status != http.StatusForbidden {
		t.Errorf("an auditor tries an input: %d", a.status)
	}

	anna := signedIn(t, f, "anna", trust.RoleAdmin)
	page := anna.see("/policies")
	says(t, page, "startswith(input.identity", "policy.rego", "muster.enroll_test.test_web", ">pass<",
		`&#34;plugin.security.password&#34;: &#34;(secret)&#34;`)
	lacks(t, page, "hush", "<b>")
	for input, want := range map[string][]string{
		"identity: web7.example.net":          {`&#34;verdict&#34;: &#34;allow&#34;`, "\\u003cb\\u003eblue"},
		`{"identity": "db7.example.net"}`:     {`&#34;verdict&#34;: &#34;deny&#34;`, "not db7.example.net"},
		"{\"identity\": 7, \"nothing\": <b>}": {"Input:", "&lt;b&gt;"},
	} {
		a := anna.post("/policies/try", "input", input)
		says(t, a.body, want...)
		lacks(t, a.body, "hush", "<b>")
	}
	if found, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "web7.example.net"); err != nil || len(found) > 0 {
		t.Errorf("a try has left %v, %v", found, err)
	}
}

// Auditors see the configuration, without what may be secret in it.
func TestTheConfigurationIsShown(t *testing.T) {
	t.Parallel()
	f, vera := installed(t)
	if a := vera.get("/configuration"); a.status != http.StatusForbidden {
		t.Errorf("a viewer sees the configuration: %d", a.status)
	}
	lacks(t, vera.see("/installation"), "/configuration")
	otto := signedIn(t, f, "otto", trust.RoleAuditor)
	says(t, otto.see("/installation"), "/configuration")
	page := otto.see("/configuration")
	says(t, page, "trust_domain: fleet.test", "crl:", "validity: 1d", "url: https://hooks.example.net/(secret)",
		"pager.secret", "autosign", "/usr/bin/true")
	lacks(t, page, "hush", "whsec_", "PRIVATE")
}

// The page writes the command, whose arguments a shell takes as they are.
func TestTheCommandForATokenIsWritten(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "vera", trust.RoleViewer)
	says(t, v.see("/tokens"), `href="/tokens/new"`)
	lacks(t, v.see("/tokens/new"), "muster jwt sign")
	page := html.UnescapeString(main(v.see("/tokens/new?urls=a:4222+b:4222&names=web*.lan+$(reboot)&site=it%27s&uses=20")))
	says(t, page, "muster jwt sign provisioning.jwt signer-key.pem --default --urls 'a:4222' --urls 'b:4222' "+
		`--identity 'web*.lan' --identity '$(reboot)' --site 'it'\''s' --uses '20' --validity '30d'`)
}
