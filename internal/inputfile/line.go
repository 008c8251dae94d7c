package inputfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

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
