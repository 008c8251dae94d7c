package cli

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/alecthomas/kingpin/v2"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// IsTerminal reports whether the stream f is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && file != nil && term.IsTerminal(int(file.Fd()))
}

// Printable returns s with tabs as blanks and other unprintable characters except line ends written as \u and their
// code. Escape sequences and direction marks in the text of an unverified token could otherwise rewrite the terminal.
func Printable(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // a lone byte may be a control character of an 8-bit terminal
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString("    ") // as a policy's compiler quotes it
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// PrintableJSON returns JSON with unprintable characters as escapes, which a terminal shows and a program reads as
// before. A text without them is returned as it is.
func PrintableJSON(text []byte) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7f }) {
		return text // JSON escapes the control characters of ASCII
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < 0x7f, r != utf8.RuneError && unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.Bytes()
}

func unprintable(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// Progress is a progress bar on a terminal. Elsewhere it shows nothing. It is safe for concurrent use.
type Progress struct{ bar *progressbar.ProgressBar }

// NewProgress starts a bar on w for a number of steps, -1 if unknown. what names the steps, such as "nodes".
func NewProgress(w io.Writer, label, what string, total int) *Progress {
	return &Progress{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetVisibility(IsTerminal(w)),
		progressbar.OptionSetDescription(label),
		progressbar.OptionEnableColorCodes(false),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString(what),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

// Add counts n steps as done. It ignores errors of the terminal.
func (p *Progress) Add(n int) { _ = p.bar.Add(n) }

// Done removes the bar.
func (p *Progress) Done() { _ = p.bar.Finish() }

// printable writes lines of JSON as [PrintableJSON]. The handler for text quotes what is unprintable by itself.
type printable struct{ io.Writer }

func (p printable) Write(line []byte) (int, error) {
	_, err := p.Writer.Write(PrintableJSON(line))
	return len(line), err
}

// LogFlags are the flags of a daemon's log.
type LogFlags struct {
	level, format string
}

// Add adds the flags to a command.
func (f *LogFlags) Add(c *kingpin.CmdClause) {
	Enum(Flag(c, "log-level"), &f.level, "debug", "info", "warn", "error")
	Enum(Flag(c, "log-format").Default("text"), &f.format, "text", "json")
}

// New returns a logger to w and its level, which is info until set otherwise. The level is nil if the flags fix it.
func (f *LogFlags) New(w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(w, options))
	if f.format == "json" {
		handler = slog.NewJSONHandler(printable{w}, options)
	}
	if f.level == "" {
		return slog.New(handler), level
	}
	_ = level.UnmarshalText([]byte(f.level)) // the flag takes no other text
	return slog.New(handler), nil
}
