package console

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

// A file is an exported list: JSON as the API has it, or CSV with the named members of that; IN.NAME is a member of IN.
// Nothing is sent before its first row. Writes ignore that the browser has gone.
type file struct {
	v       *visit
	members []string
	csv     *csv.Writer // nil: JSON
	begun   bool
}

func newFile(v *visit, members ...string) *file {
	f := &file{v: v, members: members}
	if strings.HasSuffix(v.r.URL.Path, ".csv") {
		f.csv = csv.NewWriter(v.w)
	}
	return f
}

func (f *file) begin() (first bool) {
	if f.begun {
		return false
	}
	f.begun = true
	f.v.w.Header().Set("Content-Type", "application/json")
	f.v.w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", path.Base(f.v.r.URL.Path)))
	if f.csv != nil {
		f.v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		_ = f.csv.Write(f.members)
	}
	return true
}

func (f *file) add(row any) {
	sep := ",\n"
	if f.begin() {
		sep = "["
	}
	b, err := json.Marshal(row)
	switch {
	case err != nil: // no row has what JSON lacks
	case f.csv == nil:
		_, _ = f.v.w.Write(append([]byte(sep), b...))
	default:
		var all map[string]any
		read := json.NewDecoder(bytes.NewReader(b))
		read.UseNumber()
		_ = read.Decode(&all)
		cells := make([]string, len(f.members))
		for i, name := range f.members {
			cells[i] = memberText(all, name)
		}
		_ = f.csv.Write(cells)
	}
}

func memberText(row map[string]any, name string) (text string) {
	if in, member, inner := strings.Cut(name, "."); inner {
		row, _ = row[in].(map[string]any)
		name = member
	}
	if v := row[name]; v != nil {
		text = fmt.Sprint(v)
	}
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text // no spreadsheet shall take a text of a node for a formula
	}
	return text
}

// end cuts an answer that is not sent to its end, so that it is not taken for the whole list.
func (f *file) end(err error) error {
	switch {
	case err != nil && f.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case f.begin() && f.csv == nil:
		_, _ = f.v.w.Write([]byte("["))
	}
	if f.csv != nil {
		f.csv.Flush()
	} else {
		_, _ = f.v.w.Write([]byte("]\n"))
	}
	return nil
}

func (c nodePages) export(v *visit) error {
	members := strings.Fields("identity state site protocol connection.connected connection.since connection.broker " +
		"seen expires serial token_id first_enrolled changed agent fault")
	for _, fact := range c.cfg.Fleet.Facts() {
		members = append(members, "facts."+fact)
	}
	f := newFile(v, members...)
	return f.end(c.every(v, v.r.URL.Query(), func(n *fleet.Node) { f.add(n) }))
}

func (c tokenPages) export(v *visit) error {
	f := newFile(v, "tid", "signer_name", "jti", "site", "uses", "used", "expires_at", "first_seen")
	all, err := c.cfg.Orders.Tokens.List(v.r.Context())
	for i := range all {
		if v.login.Sites.Has(all[i].Site) {
			f.add(&all[i])
		}
	}
	return f.end(err)
}

// export has the last hour's events if no time is given, as the page.
func (c eventPages) export(v *visit) error {
	q, err := events.ParseQuery(v.r.URL.Query(), c.cfg.Now())
	if err != nil {
		return badRequest(err)
	}
	if q.Once, q.Of = true, c.cfg.Fleet.About(v.login.Sites); q.Since.IsZero() {
		q.Since = c.cfg.Now().Add(-time.Hour)
	}
	f := newFile(v, strings.Fields("time type subject data.code data.cause data.source data.by data.why")...)
	return f.end(c.cfg.Events.Events(v.r.Context(), q, func(e *events.Stored) error { f.add(e); return nil }))
}

func (c certificatePages) export(v *visit) error {
	given := v.r.URL.Query()
	given.Del("page")
	given.Set("limit", strconv.Itoa(paging.MaxLimit))
	q, err := services.ParseQuery(given, c.cfg.Now())
	if err != nil {
		return badRequest(err)
	}
	q.Of, q.Cursor = c.cfg.Fleet.At(v.login.Sites), ""
	f := newFile(v, "node", "name", "state", "source", "profile", "serial", "expires", "code", "note")
	for more := true; more && err == nil; more = q.Cursor != "" {
		var page *services.Page
		if page, err = c.cfg.Certificates.Index().Page(q); err != nil {
			break
		}
		for i := range page.Certificates {
			f.add(&page.Certificates[i])
		}
		q.Cursor = page.Next
	}
	return f.end(err)
}
