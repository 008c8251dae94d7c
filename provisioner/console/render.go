package console

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/cli"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/services"
)

type pages map[string]*template.Template

// parsePages reads the templates: each page with the frame.
func parsePages(now func() time.Time) pages {
	frame := template.Must(template.New("frame.html").Funcs(functions(now)).ParseFS(files, "templates/frame.html",
		"templates/parts.html"))
	names, _ := fs.Glob(files, "templates/*.html") // fails only for another pattern
	all := make(pages)
	for _, name := range names {
		page := template.Must(template.Must(frame.Clone()).ParseFS(files, name))
		all[strings.TrimSuffix(path.Base(name), ".html")] = page
	}
	return all
}

// A frame is the layout of each page.
type frame struct {
	Title   string
	Path    string // of the request
	Login   *login.Login
	Form    string // secret of forms, see cookieForm
	Version string
	Main    any

	console *Console
	request *http.Request
}

// A menuEntry links to a page. It is marked on the pages below the path, and below Also.
type menuEntry struct {
	Label, Path, Also string
	Here              bool
}

// Menu returns the main pages.
func (f *frame) Menu() []menuEntry {
	all := []menuEntry{
		{Label: "Overview", Path: "/", Also: "do"},
		{Label: "Nodes", Path: "/nodes", Also: "many jobs"},
		{Label: "Pending", Path: "/approvals"},
		{Label: "Certificates", Path: "/certificates"},
		{Label: "Tokens", Path: "/tokens"},
		{Label: "Policy", Path: "/policies"},
		{Label: "Activity", Path: "/events"},
		{Label: "Installation", Path: "/installation", Also: "allow operators sessions signers authority webhooks " +
			"configuration backups components"},
	}
	all = slices.DeleteFunc(all, func(e menuEntry) bool {
		return e.Path != "/" && !f.May("GET "+e.Path)
	})
	part, _, _ := strings.Cut(strings.TrimPrefix(f.Path, "/"), "/")
	for i := range all {
		e := &all[i]
		e.Here = e.Path == "/"+part || part != "" && slices.Contains(strings.Fields(e.Also), part)
	}
	return all
}

// May reports whether a route is for the operator. With the value of its first wildcard, it also looks whether that is
// at the operator's sites.
func (f *frame) May(pattern string, of ...any) bool {
	need, known := f.console.table[pattern]
	switch {
	case !known || f.Login == nil || !f.Login.Role.Covers(need.role):
		return false
	case len(of) == 0:
		return f.Login.Sites == nil || need.at != nil
	}
	return need.within(f.request.Context(), fmt.Sprint(of...), f.Login.Sites) == nil
}

// An item is an event with its node, which is "" without a page for the operator: alarms name a provisioner.
type item struct {
	*events.Logged

	Node string
}

// Items returns events as they are listed.
func (f *frame) Items(all []*events.Logged) (items []item) {
	for _, e := range all {
		i := item{e, e.Data.Node}
		if _, err := wire.ParseIdentity(i.Node); err != nil || e.Type == events.AlarmRaised ||
			e.Type == events.AlarmCleared || !f.May("GET /nodes/{identity}", i.Node) {
			i.Node = ""
		}
		items = append(items, i)
	}
	return items
}

func (c *Console) show(w http.ResponseWriter, r *http.Request, login *login.Login, status int, page, title string,
	main any) {
	f := &frame{Title: title, Path: r.URL.Path, Login: login, Form: formToken(w, r), Version: c.cfg.Version, Main: main,
		console: c, request: r}
	var b bytes.Buffer
	if err := c.pages[page].Execute(&b, f); err != nil {
		c.cfg.Log.ErrorContext(r.Context(), "page not rendered", "subject", page, "err", err)
		http.Error(w, "the page could not be rendered; the provisioner's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser has gone
}

func (c *Console) page(v *visit, name, title string, main any) error {
	c.show(v.w, v.r, v.login, http.StatusOK, name, title, main)
	return nil
}

func functions(now func() time.Time) template.FuncMap {
	return template.FuncMap{
		"ago":    func(t time.Time) string { return cmp.Or(span.Ago(t, now()), "never") },
		"age":    func(t time.Time) string { return span.Age(now().Sub(t)) },
		"linked": func(c fleet.ConnectionState) string { return linkedWords[c] },
		"stamp":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"over":   func(t time.Time) bool { return !t.IsZero() && !now().Before(t) },
		"short":  short,
		"number": number,
		"remedy": remedies,
		"tone":   tone,
		"prose":  prose, "hashes": hashes, "odd": func(n int) bool { return n%2 == 1 },
		"sentence": sentence, "shell": shell, "words": strings.Fields, "plain": cli.Printable,
		"what": func(t *events.Logged) string { return cli.Printable(eventText(t)) },
		"kind": func(t events.Type) string { return strings.TrimPrefix(string(t), "io.muster.") },
		"once": byName,
	}
}

var linkedWords = map[fleet.ConnectionState]string{
	fleet.Yes:     "connected",
	fleet.No:      "not connected",
	fleet.Unknown: "connection unknown",
}

// short abbreviates a hash or a serial number; the title has all of it.
func short(s any) string {
	text := fmt.Sprint(s)
	if len(text) > 12 {
		return text[:12] + "…"
	}
	return text
}

func number(n any) string {
	s := fmt.Sprint(n)
	if _, err := strconv.ParseUint(s, 10, 64); err != nil {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// tones are the colors of states, events and words: good, bad or warn; the rest is neutral.
var tones = map[any]string{
	provisioner.StateProvisioned: "good", provisioner.StateEnrolled: "warn", provisioner.StateRevoked: "bad",
	fleet.Yes: "good", fleet.No: "bad", fleet.Unknown: "warn",
	services.StateCurrent: "good", services.StateWaiting: "warn", services.StateRefused: "bad",
	services.StateExpired: "bad", services.StateRevoked: "bad",
	fleet.FeatureRunning: "good", fleet.FeatureStarting: "warn", fleet.FeatureFailed: "bad",
	"allow": "good", "deny": "bad", "approval": "warn", "defer": "warn", "failed to decide": "bad",

	events.Enrolled: "good", events.Renewed: "good", events.Provisioned: "good", events.AlarmCleared: "good",
	events.Approved: "good", events.ServerProvisioned: "good", events.Resumed: "good",
	events.Refused: "warn", events.Commanded: "warn", events.ShadowDiffers: "warn", events.TokenUnfrozen: "warn",
	events.Paused: "warn", events.RunFailed: "warn", events.CertificateFailed: "warn",
	events.CertificateIssued: "good", events.CertificateRenewed: "good", events.CertificateApproved: "good",
	events.CertificateRevoked: "bad", events.CertificateRejected: "bad",
	events.Attempt: "bad", events.LoginRefused: "bad", events.AlarmRaised: "bad", events.PolicyRefused: "bad",
	events.Cloned: "bad", events.Revoked: "bad", events.TokenRevoked: "bad", events.Rejected: "bad",
}

func tone(what any) string { return tones[what] }

// prose splits a text at backquotes: odd parts are commands.
func prose(text string) []string {
	return strings.Split(strings.ReplaceAll(cli.Printable(text), "by operator:", "by "), "`")
}

var hash = regexp.MustCompile(`\b[0-9a-f]{32,64}\b`)

// hashes splits a text at its hashes and serial numbers, which are the odd parts.
func hashes(text string) (parts []string) {
	begin := 0
	for _, at := range hash.FindAllStringIndex(text, -1) {
		parts = append(parts, text[begin:at[0]], text[at[0]:at[1]])
		begin = at[1]
	}
	return append(parts, text[begin:])
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[n:]
	return strings.TrimRight(text, ".") + "."
}
