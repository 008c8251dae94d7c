package cli

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
)

// labelWidth is the column of the colons: the longest label of Choria's layouts, "Provisioning Registration Data".
const labelWidth = 30

// Labels is a list of labeled values, aligned at the colon as Choria prints tokens. The zero value is ready to use.
type Labels struct {
	lines []string
}

// Add appends a value, made [Printable], and aligns its lines.
func (l *Labels) Add(label, value string) {
	value = strings.ReplaceAll(Printable(value), "\n", "\n"+strings.Repeat(" ", labelWidth+2))
	l.lines = append(l.lines, fmt.Sprintf("%*s: %s\n", labelWidth, label, value))
}

// AddIf appends a value that is not empty.
func (l *Labels) AddIf(label, value string) {
	if value != "" {
		l.Add(label, value)
	}
}

// Addf is Add with a format.
func (l *Labels) Addf(label, format string, args ...any) { l.Add(label, fmt.Sprintf(format, args...)) }

func (l *Labels) String() string { return strings.Join(l.lines, "") }

// A Table is rows of text in aligned columns. The zero value is ready to use.
type Table struct {
	rows [][]string
}

// NewTable returns a table with its first row.
func NewTable(header ...string) *Table {
	t := &Table{}
	t.Add(header...)
	return t
}

// Add appends a row of cells, made [Printable]. Rows may differ in length.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = strings.ReplaceAll(Printable(c), "\n", " ")
	}
	t.rows = append(t.rows, row)
}

func (t *Table) String() string {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(columns, strings.Join(row, "\t")) // writes to b never fail
	}
	_ = columns.Flush()
	return lineEnds.ReplaceAllString(b.String(), "\n")
}

var lineEnds = regexp.MustCompile(" *\n")

// Text is output that is made [Printable] and otherwise written as it is.
type Text string

func (t Text) String() string { return Printable(string(t)) }

// Parts are outputs with an empty line between.
type Parts []fmt.Stringer

func (p Parts) String() string {
	texts := make([]string, len(p))
	for i, part := range p {
		texts[i] = part.String()
	}
	return strings.Join(texts, "\n")
}
