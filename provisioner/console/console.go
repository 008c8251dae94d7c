// Package console is the web console for operators: pages made by html/template
// on the server, of which the live parts are fetched again every few seconds. It is
// served by the HTTPS listener of package httpapi, and rests on the same
// provisioner and the same list of nodes.
//
// # Trust
//
// Each request is authenticated anew, by the operator's token, which a cookie
// holds, or by the certificate of the connection: an operator who is removed is out
// with the next request. What changes something carries a secret of the browser's that other sites do not know, says why, and is
// an event. All that nodes and strangers say is text: html/template escapes it, the
// script of the pages makes no HTML of it, and the policy of the pages' content
// forbids every script but that one.
package console

import (
	"context"
	"embed"
	"log/slog"
	"net/http"
	"time"

	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
)

//go:embed assets templates
var files embed.FS

// Config configures [New].
type Config struct {
	Provisioner *provisioner.Provisioner // required
	Orders      *operate.Orders          // given to it; required
	Login       *login.Verifier          // of its operators; required
	Fleet       *fleet.Index             // required
	Nodes       *fleet.Inspector         // required
	Events      events.Log               // required

	Webhooks events.Webhooks // of this process; required

	// Components returns the provisioners of the installation. Required.
	Components func(context.Context) ([]*fleet.HeardComponent, error)

	// Problem returns how an error is answered: with an HTTP status, what went wrong
	// and what to do about it. Required.
	Problem func(error) (status int, what, remedy string)

	// Shadow returns what has come of the shadow policy, nil if there is none. Nil:
	// there is none.
	Shadow func() *Shadow

	// Version is the program's. Optional.
	Version string

	// Log is optional; discards by default.
	Log *slog.Logger

	// Now is optional; defaults to [time.Now].
	Now func() time.Time
}

// A Shadow is what has come of a policy that is asked and decides nothing, since
// this provisioner was started.
type Shadow struct {
	Digest                      string
	Compared, Differed, LeftOut uint64 // decisions
}

// A Console serves the pages. Make one with [New], and Run it, once.
type Console struct {
	cfg      Config
	mux      *http.ServeMux
	pages    pages
	activity *activity
}

// New returns a Console. It reads nothing and starts nothing.
func New(cfg Config) (*Console, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	all, err := parsePages(cfg.Now)
	if err != nil {
		return nil, err
	}
	c := &Console{
		cfg:      cfg,
		mux:      http.NewServeMux(),
		pages:    all,
		activity: newActivity(cfg.Events, cfg.Log, cfg.Now),
	}
	c.routes()
	return c, nil
}

// Run follows the log of events, from the first look at a page on, until ctx is
// done, and returns nil then.
func (c *Console) Run(ctx context.Context) error { return c.activity.run(ctx) }

// ServeHTTP implements [http.Handler]. It expects a request over TLS whose
// certificate, if there is one, is of a key that the peer has proven to hold.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	c.mux.ServeHTTP(w, r)
}

// harden says what a page may do, which is little: ask its own server, and be
// styled and enlivened by it.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}
