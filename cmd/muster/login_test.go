package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/login"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// TestLoginByBrowser has a person, signed in to the console by OpenID Connect, open the address that `muster login`
// prints. Commands with the same --url are then the person's, until the session is ended.
func TestLoginByBrowser(t *testing.T) {
	t.Parallel()
	const issuer = "https://sso.example.net" // the person has signed in before
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "s3cret\n")
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.OIDC = login.Settings{Issuer: issuer, ClientID: "muster", ClientSecretFile: secret,
			Roles: map[string]login.GroupRole{"all": {Role: trust.RoleAdmin}}}
	}})
	text, hash := orders.NewSecret()
	of := &orders.Sessions{Schema: orders.SessionSchema, Person: orders.PersonOf(issuer, "anna"), Issuer: issuer,
		Sessions: []orders.Session{{ID: wire.NewID(), Name: "oidc:anna@example.net", Hash: hash, Role: trust.RoleAdmin,
			Agent: "browser", Created: time.Now(), Expires: time.Now().Add(time.Hour)}}}
	if _, err := f.Daemon().Store().Logs().Sessions.Put(f.Context(), of.Person, of, 0); err != nil {
		t.Fatal(err)
	}
	home, roots := t.TempDir(), filepath.Join(t.TempDir(), "roots.pem")
	write(t, roots, f.Daemon().RootsPEM())
	remote := func(args ...string) *process {
		t.Helper()
		cmd := command(t, append(args, "--url", f.Daemon().APIURL(), "--login", roots)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home)
		return startCommand(t, cmd)
	}
	p := remote("login")
	p.waitFor("open this address")
	address := regexp.MustCompile(`https://\S+`).FindString(p.output())
	if !strings.HasPrefix(address, f.Daemon().APIURL()+"/login/command?") {
		t.Fatalf("address %q", address)
	}
	page := browse(t, f, http.MethodGet, address, "muster."+of.Person+"."+text, nil)
	form := url.Values{"why": {"muster login"}}
	for _, m := range regexp.MustCompile(`type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], m[2])
	}
	browse(t, f, http.MethodPost, f.Daemon().APIURL()+"/login/command", "muster."+of.Person+"."+text, form)
	<-p.done
	if out := p.output(); !strings.Contains(out, "operator:oidc:anna@example.net has the role admin until") ||
		strings.Contains(out, of.Person) {
		t.Errorf("login: %s", out)
	}
	saved, err := filepath.Glob(home + "/muster/*.session")
	if err != nil || len(saved) != 1 {
		t.Fatalf("saved: %q, %v", saved, err)
	}
	if info, err := os.Stat(saved[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", saved[0], info.Mode(), err)
	}
	list := remote("session", "list")
	<-list.done
	m := regexp.MustCompile(`(?m)^(\S{22}) +oidc:anna@example.net +admin +command`).FindStringSubmatch(list.output())
	if m == nil {
		t.Fatalf("sessions: %s", list.output())
	}
	<-remote("session", "end", m[1], "--why", "done").done
	after := remote("status")
	<-after.done
	if out := after.output(); after.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out, "`muster login`") {
		t.Errorf("after the end: %s", out)
	}
}

// browse is one request of the person's browser, which follows redirects to loopback as browsers do.
func browse(t *testing.T, f *testbed.Fleet, method, address, session string, form url.Values) string {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.Daemon().RootsPEM()))
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS13}}}
	t.Cleanup(c.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: "__Host-muster-session", Value: session})
	r.AddCookie(&http.Cookie{Name: "__Host-muster-form", Value: strings.Repeat("F", 26)})
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d, %v: %s", method, address, resp.StatusCode, err, b)
	}
	return string(b)
}
