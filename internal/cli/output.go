package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/span"
)

// Forms of output. Verbs that show or change one thing have the first two, lists have all.
const (
	FormTable = "table" // or another text for people
	FormJSON  = "json"
	FormJSONL = "jsonl" // an object on each line
	FormWide  = "wide"  // a table with all columns
	FormCSV   = "csv"   // all columns
	FormName  = "name"  // the first column alone
)

// Output is the form of a verb's answer.
type Output struct {
	// Forms are the values of --output that the verb accepts; nil means table and json.
	Forms []string

	form string
	utc  bool
}

// ListForms are the forms of a list.
func ListForms() []string {
	return []string{FormTable, FormWide, FormJSON, FormJSONL, FormCSV, FormName}
}

// AddFlags adds --output and --utc.
func (o *Output) AddFlags(c *kingpin.CmdClause) {
	if o.Forms == nil {
		o.Forms = []string{FormTable, FormJSON}
	}
	Enum(Flag(c, "output").Short('o').Default(FormTable), &o.form, o.Forms...)
	Flag(c, "utc").Action(func(*kingpin.ParseContext) error {
		time.Local = time.UTC // no goroutine runs yet
		return nil
	}).BoolVar(&o.utc)
}

// Form returns the form that is asked for.
func (o *Output) Form() string { return o.form }

// JSON reports whether a single answer is for programs.
func (o *Output) JSON() bool { return o.form == FormJSON }

// ForPeople reports whether the answer is a table or another text.
func (o *Output) ForPeople() bool { return o.form == FormTable || o.form == FormWide }

// A Column is a column of a list.
type Column[R any] struct {
	Title string      // in capitals
	Wide  bool        // in wide and csv only
	Value func(R) any // a text, a number, a time or a list of texts
}

// WriteList writes rows in the form that is asked for. In JSON it is answer.
func WriteList[R any](w io.Writer, o *Output, answer any, rows []R, columns []Column[R]) error {
	switch o.form {
	case FormJSON:
		return WriteJSON(w, answer)
	case FormJSONL:
		for _, r := range rows {
			if err := writeJSON(w, r, ""); err != nil {
				return err
			}
		}
		return nil
	case FormCSV:
		lines := cells(o, rows, columns)
		for i, title := range lines[0] {
			lines[0][i] = strings.ToLower(strings.ReplaceAll(title, " ", "_"))
		}
		return csv.NewWriter(w).WriteAll(lines)
	}
	_, err := fmt.Fprint(w, NewListTable(o, rows, columns))
	return err
}

// NewListTable returns the table of a list, with all columns if that is asked for.
func NewListTable[R any](o *Output, rows []R, columns []Column[R]) *Table {
	t := &Table{}
	if o.form == FormName {
		columns = columns[:1]
	} else if o.form != FormWide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[R]) bool { return c.Wide })
	}
	for i, line := range cells(o, rows, columns) {
		if i > 0 || o.form != FormName {
			t.Add(line...)
		}
	}
	return t
}

// NewLabels returns all columns of one row.
func NewLabels[R any](o *Output, row R, columns []Column[R]) *Labels {
	l, lines := &Labels{}, cells(o, []R{row}, columns)
	for i, title := range lines[0] {
		l.Add(title, lines[1][i])
	}
	return l
}

// cells returns the titles of the columns, and the texts of each row.
func cells[R any](o *Output, rows []R, columns []Column[R]) [][]string {
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.Title)
	}
	lines := [][]string{titles}
	now := time.Now()
	for _, r := range rows {
		var line []string
		for _, c := range columns {
			line = append(line, o.cell(c.Value(r), now))
		}
		lines = append(lines, line)
	}
	return lines
}

// cell is the text of a value. A table has - for an empty one, and ages.
func (o *Output) cell(value any, now time.Time) string {
	text := ""
	switch v := value.(type) {
	case time.Time:
		switch {
		case v.IsZero():
		case o.utc || !o.ForPeople():
			text = v.UTC().Format(time.RFC3339)
		default:
			text = span.Ago(v, now)
		}
	case []string:
		text = strings.Join(v, ", ")
	default:
		text = fmt.Sprint(v)
	}
	if text == "" && o.ForPeople() {
		return "-"
	}
	return Printable(text)
}

// WriteJSON writes a value as indented [PrintableJSON].
func WriteJSON(w io.Writer, value any) error { return writeJSON(w, value, "  ") }

func writeJSON(w io.Writer, value any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(value)
	if err == nil {
		_, err = w.Write(PrintableJSON(b.Bytes()))
	}
	return err
}
