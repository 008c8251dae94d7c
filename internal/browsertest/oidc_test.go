package browsertest

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/provisioner/login"
	"muster/provisioner/trust"
)

// store is the storage of zitadel's example, whose ID tokens have groups.
type store struct{ *storage.Storage }

func (s store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest,
	scopes []string,
) error {
	info.AppendClaims("groups", []string{"fleet-admins"})
	return s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
}

func (s store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return claiming{c}, err
}

type claiming struct{ op.Client }

func (claiming) IDTokenUserinfoClaimsAssertion() bool { return true }

// provided returns a fleet whose operators sign in at zitadel's provider.
func provided(t *testing.T) *testbed.Fleet {
	t.Helper()
	if !testproc.InCI() {
		t.Skip("needs a browser: `make browser` runs it")
	}
	clients := map[string]*storage.Client{}
	idp := httptest.NewUnstartedServer(nil)
	idp.StartTLS()
	t.Cleanup(idp.Close)
	idp.Config.Handler = exampleop.SetupServer(idp.URL,
		store{storage.NewStorageWithClients(storage.NewUserStore(idp.URL), clients)}, nil, false)
	dir := t.TempDir()
	secret, authority := filepath.Join(dir, "secret"), filepath.Join(dir, "idp.pem")
	for path, text := range map[string]string{secret: "s3cret\n",
		authority: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: idp.Certificate().Raw}))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.OIDC = login.Settings{Issuer: idp.URL, ClientID: "muster", ClientSecretFile: secret, CA: authority,
			Roles: map[string]login.GroupRole{"fleet-admins": {Role: trust.RoleAdmin}}}
	}})
	clients["muster"] = storage.WebClient("muster", "s3cret", f.Daemon().APIURL()+"/login/oidc/back")
	return f
}

// TestSigningInAtAProvider goes from the page that was asked for to the provider and back, gives a waiting command its
// code, and signs out.
func TestSigningInAtAProvider(t *testing.T) {
	t.Parallel()
	f := provided(t)
	axe := axeSource(t)
	b := open(t, f.Daemon().APIURL())
	b.visit("/nodes?q=web")
	b.accessible(axe, "login")
	b.do(chromedp.Click(`a[href^="/login/oidc"]`, chromedp.ByQuery),
		chromedp.WaitVisible(`input[name="password"]`, chromedp.ByQuery),
		chromedp.SetValue(`input[name="username"]`, "test-user2", chromedp.ByQuery),
		chromedp.SetValue(`input[name="password"]`, "verysecure", chromedp.ByQuery),
		chromedp.Click(`button[type="submit"]`, chromedp.ByQuery))
	b.eventually("the page that was asked for", `location.pathname + location.search === "/nodes?q=web"`)
	b.eventually("the name", `document.body.innerText.includes("oidc:test-user2@zitadel.ch")`)

	got := make(chan string, 1)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	waiting := &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case got <- r.URL.Path:
			default: // an icon
			}
			_, _ = w.Write([]byte("done"))
		})}}
	waiting.Start()
	t.Cleanup(waiting.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	b.visit("/login/command?port=" + port + "&challenge=" + login.Challenge("verifier"))
	b.accessible(axe, "login for commands")
	b.do(chromedp.Click("main button", chromedp.ByQuery))
	b.eventually("the command's answer", `document.body.innerText === "done"`)
	if code := <-got; !strings.HasPrefix(code, "/muster.") {
		t.Errorf("the code: %q", code)
	}

	b.visit("/sessions")
	b.accessible(axe, "sessions")
	b.picture("sessions-signed-in")
	b.do(chromedp.Click(`form[action="/logout"] button`, chromedp.ByQuery))
	b.eventually("the login page", `location.pathname === "/login"`)
	b.visit("/nodes")
	b.eventually("the login page", `location.pathname === "/login"`)
	b.sound("signing in")
}
