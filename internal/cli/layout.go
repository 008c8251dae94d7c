package cli

import (
	"fmt"
	"io"
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
	l.lines = append(l.lines, fmt.Sprintf("%*s: %s", labelWidth, label, value))
}

// Addf is Add with a format.
func (l *Labels) Addf(label, format string, args ...any) { l.Add(label, fmt.Sprintf(format, args...)) }

// WriteTo implements [io.WriterTo].
func (l *Labels) WriteTo(w io.Writer) (int64, error) {
	if len(l.lines) == 0 {
		return 0, nil
	}
	n, err := io.WriteString(w, strings.Join(l.lines, "\n")+"\n")
	return int64(n), err
}

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

// WriteTo implements [io.WriterTo].
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(columns, strings.Join(row, "\t")) // writes to b never fail
	}
	_ = columns.Flush()
	n, err := io.WriteString(w, lineEnds.ReplaceAllString(b.String(), "\n"))
	return int64(n), err
}

var lineEnds = regexp.MustCompile(" *\n")

// Text is output that is made [Printable] and otherwise written as it is.
type Text string

// WriteTo implements [io.WriterTo].
func (t Text) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, Printable(string(t)))
	return int64(n), err
}

// Parts are outputs with an empty line between.
type Parts []io.WriterTo

// WriteTo implements [io.WriterTo].
func (p Parts) WriteTo(w io.Writer) (sum int64, err error) {
	for i, part := range p {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return sum, err
			}
			sum++
		}
		n, err := part.WriteTo(w)
		if sum += n; err != nil {
			return sum, err
		}
	}
	return sum, nil
}
