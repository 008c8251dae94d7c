package console

import (
	"fmt"
	"strings"
	"time"

	"muster/internal/cli"
)

// A tablePage is a page of tables.
type tablePage struct {
	Title, Note string // commands of the note between backquotes
	Tables      []*table
}

// A table has the name of each row in its first column.
type table struct {
	Title   string // empty: that of the page
	Note    string // commands between backquotes
	Columns []string
	Rows    [][]cell
	Empty   string // without rows; commands between backquotes
}

// A cell is a value of a table. Text may come from anywhere.
type cell struct {
	Text string
	As   string    // how it is shown: any (if empty), chip, code, hash, long, number, time, types, or "" for text
	Tone string    // of a chip
	Link string    // path of this server, or ""
	Time time.Time // instead of Text; zero: none
}

// add adds a row. Values are cells, times, numbers and texts; those beyond the columns are left out.
func (t *table) add(values ...any) {
	row := make([]cell, min(len(values), len(t.Columns)))
	for i, value := range values[:len(row)] {
		row[i] = cell{Text: cli.Printable(fmt.Sprint(value))}
		switch v := value.(type) {
		case cell:
			row[i] = v
		case time.Time:
			row[i] = cell{As: "time", Time: v}
		case int, uint64:
			row[i].As = "number"
		}
	}
	t.Rows = append(t.Rows, row)
}

func as[T ~string](how string, text T) cell { return cell{Text: cli.Printable(string(text)), As: how} }

func list[T ~string](all []T) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

// byName is the name of an operator on record.
func byName(by string) string { return strings.TrimPrefix(by, "operator:") }

func chip(text, tone string) cell { return cell{Text: text, As: "chip", Tone: tone} }

// tables shows a page of tables below Installation.
func (c *Console) tables(v *visit, title, note string, all ...*table) error {
	return c.page(v, "table", title, &tablePage{title, note, all})
}
