// Package inputfile opens the files that a command line or a configuration names. It judges what a file is before it
// reads, bounds size and time, and says what is wrong with a text that people or their editors wrote.
package inputfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// MaxBytes refuses files that were given by mistake, such as logs.
const MaxBytes = 1 << 20

// Bounds of the time for a pipe: until a program has opened it for writing, and until its end.
const (
	writerWait = 2 * time.Second
	pipeWait   = time.Minute // a person may be typing a passphrase for the program that writes
)

// A Source says where the name of a file comes from.
type Source int

const (
	// Configured is for a name in a configuration or token, or a default. Only a regular file is read.
	Configured Source = iota

	// Typed is for a name on a command line. A pipe as of `--key <(…)`, or a terminal, is read too.
	Typed
)

// Open opens a file for reading. It does not block: a pipe without a writer has no bytes. Errors name the path.
func Open(path string, from Source) (*os.File, error) {
	if info, err := os.Stat(path); err == nil { // opening a device may act on it
		if err := checkKind(path, info.Mode(), from); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil { // it may have been replaced since
		err = checkKind(path, info.Mode(), from)
	}
	if err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		err = awaitWriter(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkKind(path string, mode fs.FileMode, from Source) error {
	kind := ""
	switch {
	case mode.IsRegular():
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	case mode&fs.ModeNamedPipe != 0 && from == Configured:
		kind = "pipe"
	case mode&fs.ModeDevice != 0 && (from == Configured || mode&fs.ModeCharDevice == 0):
		kind = "device"
	}
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%s: is a %s, want a regular file", path, kind)
}

// Read returns the content of a file. It is an error if that has more than limit bytes, or if a pipe has not ended
// within a minute. The checks judge the open file before it is read.
func Read(path string, from Source, limit int64, checks ...func(path string, info fs.FileInfo) error) ([]byte, error) {
	f, err := Open(path, from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	for _, check := range checks {
		if err == nil {
			err = check(path, info)
		}
	}
	if err != nil {
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(pipeWait)) // a regular file has none, and needs none
	return ReadAll(f, path, limit)
}

// ReadAll returns all that r has, or an error for more than limit bytes.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s: the pipe has not ended after %v: is its writer still there?", name, pipeWait)
	case err != nil:
		return nil, err
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s: more than %d bytes, the limit: is it the right file?", name, limit)
	}
	return b, nil
}

// ReadText is [Read] and [Text], for at most [MaxBytes].
func ReadText(path string, from Source) ([]byte, error) {
	b, err := Read(path, from, MaxBytes)
	if err != nil {
		return nil, err
	}
	return Text(b, path)
}

// Parse reads a text as [ReadText] does, and parses it. All errors name the path.
func Parse[T any](path string, from Source, parse func([]byte) (T, error)) (none T, err error) {
	b, err := ReadText(path, from)
	if err != nil {
		return none, err
	}
	v, err := parse(b)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// OpenState opens a file of the process's own for reading and writing, with more flags of [os.OpenFile]. It makes a
// missing one, which only its owner can use. It does not block.
func OpenState(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noWait|flags, 0o600)
	if err != nil {
		if info, unknown := os.Stat(path); unknown == nil {
			err = errors.Join(checkKind(path, info.Mode(), Configured), err)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkKind(path, info.Mode(), Configured)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Text returns a text without its byte order mark. UTF-16 is an error, which begins with name.
func Text(b []byte, name string) ([]byte, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	wide := bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff"))
	if len(b) >= 4 && !wide { // ASCII in UTF-16 without a mark
		wide = b[0] != 0 && b[1] == 0 && b[2] != 0 && b[3] == 0 || b[0] == 0 && b[1] != 0 && b[2] == 0 && b[3] != 0
	}
	if wide {
		return nil, fmt.Errorf("%s: is in UTF-16, as some Windows programs write: save it as UTF-8", name)
	}
	return b, nil
}

// assignment matches `NAME=value` and `name: value`, as a value stands in shell, environment and YAML files. Only names
// of secrets and tokens count, and any name behind `export`: a password may have the same form.
var assignment = regexp.MustCompile(`(?i)^(?:export\s+\w+|` +
	`[a-z0-9_.-]*(?:secret|token|jwt|pass|pwd|psk|key|seed|credential)[a-z0-9_.-]*)\s*([=:])\s*\S`)

// ReadLine is [Line] of a file of at most limit bytes.
func ReadLine(path string, from Source, limit int64, want string) (string, error) {
	b, err := Read(path, from, limit)
	if err != nil {
		return "", err
	}
	return Line(b, path, want)
}

// Line returns the only line of a text, without byte order mark, blanks around it and empty lines. The error begins
// with name, says what the text is instead of want, as "a token", and quotes nothing of it.
func Line(b []byte, name, want string) (string, error) {
	b, err := Text(b, name)
	if err != nil {
		return "", err
	}
	var lines []string
	comments := 0
	for line := range bytes.Lines(bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))) { // CR alone: old Macs
		switch line := strings.TrimSpace(string(line)); {
		case line == "":
		case line == "#", strings.HasPrefix(line, "# "):
			comments++
		default:
			lines = append(lines, line)
		}
	}
	if wrong := notLine(lines, comments); wrong != "" {
		return "", fmt.Errorf("%s: %s, want %s alone on one line", name, wrong, want)
	}
	return lines[0], nil
}

// notLine returns what lines are instead of one value; "" if they are one.
func notLine(lines []string, comments int) string {
	text := strings.Join(lines, "\n")
	switch {
	case text == "" && comments > 0:
		return "nothing but comments"
	case text == "":
		return "empty"
	case comments > 0:
		return "has a comment"
	case strings.HasPrefix(text, "-----BEGIN "):
		return "a key or certificate in PEM"
	case strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) >= 0:
		return "not a text: it has control characters"
	}
	if found := assignment.FindStringSubmatch(lines[0]); found != nil && found[1] == "=" {
		return "has `NAME=` in front of the value"
	} else if found != nil || lines[0] == "---" {
		return "is YAML, or has a name and a colon in front of the value"
	}
	switch {
	case json.Valid([]byte(text)) && text[0] == '{':
		return "is JSON"
	case len(lines) > 1:
		return fmt.Sprintf("has %d lines", len(lines))
	case quoted.MatchString(text):
		return "is in quotes"
	case strings.IndexFunc(text, invisible) >= 0:
		return "has an invisible character, as web pages and chats add"
	}
	return ""
}

// quoted matches a text in quotes, straight or as word processors write them.
var quoted = regexp.MustCompile("^(\".*\"|'.*'|`.*`|[“”„].*[“”]|[‘’‚].*[‘’])$")

// invisible reports whether r has no width: people see and type the text without it.
func invisible(r rune) bool { return unicode.Is(unicode.Cf, r) }
