// Package login implements "muster login" and "muster session": signing in by OpenID Connect.
package login

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
	"muster/provisioner/orders"
)

const loginHelp = `Prints an address of the provisioner's console. Open it in a browser on this machine,
sign in at the provider of OpenID Connect, and confirm. The session that the command
then gets is saved for you alone, and used by commands with the same --url that are
given no other credential. It ends after twelve hours.

  muster login --url https://prov1:8443
  muster login --url https://prov1:8443 --login roots.pem`

const sessionHelp = `Each browser that signed in by OpenID Connect has a session, and so has each login
for commands. It ends after twelve hours, when the operator signs out, or here.`

const listHelp = `Lists operator, role, beginning and end of each session, and the last address.

  muster session list
  muster session list -o json`

const endHelp = `The session is refused by every provisioner within a second. The operator can sign in
again, unless the provider refuses or the groups have no role any more.

  muster session end V1StGXR8Z5jdHi6BmyT2aQ --why 'lost laptop'
  muster session end V1StGXR8Z5jdHi6BmyT2aQ --why 'left the company' -o json`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	verb.Query(app.Command("login", "Sign in by OpenID Connect.").HelpLong(loginHelp), all, signIn,
		func(o *verb.Operator, s *saved) fmt.Stringer {
			o.Say("%s has the role %s until %s, saved in %s", s.By, s.Role, verb.Instant(s.Expires),
				verb.Quoted(s.File))
			return nil
		})
	c := app.Command("session", "See and end sessions by OpenID Connect.").HelpLong(sessionHelp)
	verb.ListOf(c.Command("list", "List live sessions, the newest first.").HelpLong(listHelp), all, "/v1/sessions",
		"no operator is signed in by OpenID Connect", columns)
	addEnd(c, all)
}

// saved is the answer of "muster login".
type saved struct {
	httpapi.Self
	File string `json:"file"`
}

func signIn(ctx context.Context, o *verb.Operator) (*saved, error) {
	file, err := o.SessionFile()
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	verifier, _ := orders.NewSecret()
	texts := make(chan string, 1)
	//nolint:gosec // one browser of this machine
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case texts <- strings.TrimPrefix(r.URL.Path, "/"):
			_, _ = fmt.Fprintln(w, "You can close this page, and go on at the command.")
		default:
			http.Error(w, "the command has its answer", http.StatusGone)
		}
	})}
	go func() { _ = srv.Serve(l) }() // ends with Shutdown, when the browser has its answer
	defer func() { _ = srv.Shutdown(context.WithoutCancel(ctx)) }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	verb.Say("open this address in a browser on this machine: %s", strings.TrimSuffix(o.URL(), "/")+
		"/login/command?"+url.Values{"port": {port}, "challenge": {login.Challenge(verifier)}}.Encode())
	verb.Say("waiting for the browser; Ctrl-C ends this. Without oidc in provisioner.yaml nothing will come: use " +
		"--login with a certificate or a token")
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case text := <-texts:
		if err := verb.SaveSession(file, text+verifier); err != nil {
			return nil, err
		}
		self, err := verb.Get[httpapi.Self](ctx, o, "/v1/self")
		return &saved{self, file}, err
	}
}

var columns = []cli.Column[orders.Session]{
	{Title: "SESSION", Value: func(s orders.Session) any { return s.ID }},
	{Title: "OPERATOR", Value: func(s orders.Session) any { return s.Name }},
	{Title: "ROLE", Value: func(s orders.Session) any { return s.Role }},
	{Title: "FOR", Value: func(s orders.Session) any { return s.Agent }},
	{Title: "SINCE", Value: func(s orders.Session) any { return s.Created }},
	{Title: "UNTIL", Value: func(s orders.Session) any { return s.Expires }},
	{Title: "ADDRESS", Value: func(s orders.Session) any { return s.Source }},
}

func addEnd(parent *kingpin.CmdClause, all cli.Verbs) {
	var id string
	c := parent.Command("end", "End a session: its holder must sign in again.").HelpLong(endHelp)
	c.Arg("session", "Id of the session.").Required().StringVar(&id)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		err := verb.Send(ctx, o, "/v1/sessions/"+url.PathEscape(id)+"/end", httpapi.Reason{Why: o.Why})
		return map[string]string{"session": id, "done": "end"}, err
	}, func(o *verb.Operator, _ map[string]string) fmt.Stringer {
		o.Say("session %s is ended", id)
		return nil
	})
}
