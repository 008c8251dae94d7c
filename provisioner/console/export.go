package console

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/services"
)

// A column of an exported list.
type column[T any] struct {
	name  string
	value func(*T) string
}

// export sends all rows as a file: CSV with the columns, or JSON as the API has it. An answer that is not sent to its
// end is cut, so that it is not taken for the whole list.
func export[T any](c *Console, v *visit, columns []column[T], rows func(each func(*T)) error) error {
	name := path.Base(v.r.URL.Path)
	asCSV := strings.HasSuffix(name, ".csv")
	lines, objects, sep := csv.NewWriter(v.w), json.NewEncoder(v.w), "["
	begin := func() {
		kind := "application/json"
		if asCSV {
			kind = "text/csv; charset=utf-8"
		}
		v.w.Header().Set("Content-Type", kind)
		v.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = columns[i].name
		}
		if asCSV {
			_ = lines.Write(cells) // the browser has gone; so too below
		}
	}
	begun := false
	each := func(row *T) {
		if !begun {
			begun = true
			begin()
		}
		if !asCSV {
			_, _ = v.w.Write([]byte(sep))
			sep = ","
			_ = objects.Encode(row)
			return
		}
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = inert(columns[i].value(row))
		}
		_ = lines.Write(cells)
	}
	err := rows(each)
	switch {
	case err != nil && begun:
		c.cfg.Log.WarnContext(v.r.Context(), "answer not sent to its end", "subject", subject(v.r), "by", v.login.By(),
			"err", err)
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case !begun:
		begin()
	}
	if lines.Flush(); !asCSV {
		if sep == "[" {
			_, _ = v.w.Write([]byte(sep))
		}
		_, _ = v.w.Write([]byte("]\n"))
	}
	return nil
}

// inert prevents that a spreadsheet takes a text of a node for a formula.
func inert(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func exported(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (c nodePages) export(v *visit) error {
	columns := []column[fleet.Node]{
		{"identity", func(n *fleet.Node) string { return string(n.Identity) }},
		{"state", func(n *fleet.Node) string { return string(n.State) }},
		{"site", func(n *fleet.Node) string { return string(n.Site) }},
		{"protocol", func(n *fleet.Node) string { return n.Protocol.String() }},
		{"connected", func(n *fleet.Node) string { return string(n.Liveness().Connected) }},
		{"since", func(n *fleet.Node) string { return exported(n.Liveness().Since) }},
		{"broker", func(n *fleet.Node) string { return n.Liveness().Broker }},
		{"seen", func(n *fleet.Node) string { return exported(n.Seen) }},
		{"expires", func(n *fleet.Node) string { return exported(n.Expires) }},
		{"serial", func(n *fleet.Node) string { return n.Serial }},
		{"token_id", func(n *fleet.Node) string { return string(n.Token) }},
		{"first_enrolled", func(n *fleet.Node) string { return exported(n.FirstEnrolled) }},
		{"changed", func(n *fleet.Node) string { return exported(n.Changed) }},
		{"agent", func(n *fleet.Node) string { return n.Agent }},
		{"fault", func(n *fleet.Node) string { return n.Fault }},
	}
	for _, fact := range c.cfg.Fleet.Facts() {
		value := func(n *fleet.Node) string { return n.Facts.Value(fact) }
		columns = append(columns, column[fleet.Node]{"fact:" + fact, value})
	}
	return export(c.Console, v, columns, func(each func(*fleet.Node)) error {
		return c.every(v, v.r.URL.Query(), each)
	})
}

func (c tokenPages) export(v *visit) error {
	return export(c.Console, v, []column[operate.TokenSummary]{
		{"tid", func(t *operate.TokenSummary) string { return string(t.ID) }},
		{"signer", func(t *operate.TokenSummary) string { return t.SignerName }},
		{"jti", func(t *operate.TokenSummary) string { return t.JTI }},
		{"site", func(t *operate.TokenSummary) string { return string(t.Site) }},
		{"uses", func(t *operate.TokenSummary) string { return strconv.Itoa(t.Uses) }},
		{"used", func(t *operate.TokenSummary) string { return strconv.Itoa(t.Used) }},
		{"expires_at", func(t *operate.TokenSummary) string { return exported(t.ExpiresAt) }},
		{"first_seen", func(t *operate.TokenSummary) string { return exported(t.FirstSeen) }},
	}, func(each func(*operate.TokenSummary)) error {
		all, err := c.cfg.Orders.Tokens.List(v.r.Context())
		for i := range all {
			if v.login.Sites.Has(all[i].Site) {
				each(&all[i])
			}
		}
		return err
	})
}

func (c certificatePages) export(v *visit) error {
	return export(c.Console, v, []column[services.Listed]{
		{"node", func(l *services.Listed) string { return string(l.Node) }},
		{"name", func(l *services.Listed) string { return l.Name }},
		{"state", func(l *services.Listed) string { return string(l.State) }},
		{"names", func(l *services.Listed) string { return strings.Join(l.Names, " ") }},
		{"serial", func(l *services.Listed) string { return l.Serial }},
		{"expires", func(l *services.Listed) string { return exported(l.Expires) }},
	}, func(each func(*services.Listed)) error {
		given := v.r.URL.Query()
		given.Del("page")
		given.Set("limit", "1000")
		q, err := services.ParseQuery(given, c.cfg.Now())
		if err != nil {
			return badRequest(err)
		}
		q.Of = c.cfg.Fleet.At(v.login.Sites)
		for q.Cursor = ""; ; {
			page, err := c.cfg.Certificates.Index().Page(q)
			if err != nil {
				return err
			}
			for i := range page.Certificates {
				each(&page.Certificates[i])
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return nil
			}
		}
	})
}
