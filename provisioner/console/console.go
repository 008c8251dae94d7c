// Package console is the web console for operators: pages rendered by html/template, whose live parts are refreshed
// when something changes. The HTTPS listener of package httpapi serves it.
//
// Each request is authenticated by the operator's token in a cookie, or by the connection's certificate, so a removed
// operator is out at the next request. A change carries a secret of the browser that other sites do not know, and a
// reason. Texts of nodes are escaped by html/template, and the content security policy forbids foreign scripts.
package console

import (
	"context"
	"embed"
	"net/http"

	"muster/provisioner/fleet"
	"muster/provisioner/operate"
)

//go:embed assets templates
var files embed.FS

// Config configures [New].
type Config struct {
	operate.Edge

	// Components returns the provisioners of the installation. Required.
	Components func(context.Context) ([]*fleet.HeardComponent, error)

	// Issuers counts valid certificates of nodes and operators by issuer's key id. It reads all records. Required.
	Issuers func(context.Context) (map[string]int, error)

	// Settings returns the configuration of this provisioner as YAML, without secrets. Required.
	Settings func() (string, error)

	// Problem returns HTTP status, text and remedy of an error. Required.
	Problem func(error) (status int, what, remedy string)

	// Shadow returns the result of the shadow policy, nil without one. Required.
	Shadow func() *Shadow

	Version string // of the program
}

// A Shadow counts the decisions of a shadow policy since the start.
type Shadow struct {
	Digest                      string
	Compared, Differed, LeftOut uint64 // decisions
}

// A Console serves the pages. Call [New] and Run, once each.
type Console struct {
	cfg   Config
	mux   *http.ServeMux
	table map[string]route // pages for operators, by pattern
	pages pages
	jobs  *jobs

	stopping context.Context // ends streams and jobs before Run returns
	stop     context.CancelFunc
}

// New returns a Console. It reads and starts nothing.
func New(cfg Config) *Console {
	c := &Console{
		cfg:   cfg,
		mux:   http.NewServeMux(),
		pages: parsePages(cfg.Now),
		jobs:  &jobs{begun: make(chan func())},
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	c.routes()
	return c
}

// Run carries out jobs until ctx is done. Then it ends the streams to browsers, finishes the orders under way, and
// returns nil.
func (c *Console) Run(ctx context.Context) error {
	context.AfterFunc(ctx, c.stop)
	return c.jobs.run(ctx)
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	c.mux.ServeHTTP(w, r)
}

// harden restricts pages to their own server's script and style.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "+
		"require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}
