package policies

import (
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxQuotedBytes is how much of a line of a policy an error quotes, and how long a line of the
// compiler's own words may be; chosen. A line may have megabytes, such as a list that a program
// has written, and goes into the log and an event.
const maxQuotedBytes = 400

// brief returns e with long lines cut, at a parser's around the place that is meant.
func brief(e *ast.Error) *ast.Error {
	with := *e
	with.Message = firstOf(e.Message)
	switch d := e.Details.(type) {
	case nil:
	case *ast.ParserErrorDetail:
		with.Details = around(d)
	default:
		with.Details = cutLines{d}
	}
	return &with
}

// around returns the part of a line around the place that is meant.
func around(d *ast.ParserErrorDetail) *ast.ParserErrorDetail {
	if len(d.Line) <= maxQuotedBytes {
		return d
	}
	from := runeStart(d.Line, max(min(d.Idx-maxQuotedBytes/2, len(d.Line)-maxQuotedBytes), 0))
	to := runeStart(d.Line, min(from+maxQuotedBytes, len(d.Line)))
	cut := &ast.ParserErrorDetail{Line: d.Line[from:to], Idx: d.Idx - from}
	if from > 0 {
		cut.Line, cut.Idx = ellipsis+cut.Line, cut.Idx+len(ellipsis)
	}
	if to < len(d.Line) {
		cut.Line += ellipsis
	}
	return cut
}

// cutLines are details of which no line is long.
type cutLines struct{ all ast.ErrorDetails }

// Lines implements [ast.ErrorDetails].
func (c cutLines) Lines() []string {
	lines := c.all.Lines()
	for i, line := range lines {
		lines[i] = firstOf(line)
	}
	return lines
}

// firstOf returns the first of a line that is too long.
func firstOf(line string) string {
	if len(line) <= maxQuotedBytes {
		return line
	}
	return line[:runeStart(line, maxQuotedBytes)] + ellipsis
}

// ellipsis stands for what was cut off.
const ellipsis = "..."

// runeStart returns where the character begins that has the byte at i; the end of s is good.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}
