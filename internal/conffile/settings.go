// Package conffile reads configuration files strictly. It reports all mistakes together, with their lines. Errors
// contain no value of server.conf, because values can be passwords.
package conffile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/internal/inputfile"
	"muster/internal/wire"
)

// maxMistakes bounds the mistakes reported per file.
const maxMistakes = 16

// ErrSettings means an invalid server.conf. The error text contains no value.
var ErrSettings = errors.New("not valid settings")

// A file that begins with beginMark but has no endMark was truncated. All its settings are refused.
const (
	beginMark = "# muster settings, complete only with the line that ends them"
	endMark   = "# end of settings"
)

// ParseSettings reads `key = value` lines, comments that begin with #, and blank lines. A value is trimmed, may be
// empty, and may contain = and #. Any other line is an error that wraps [ErrSettings] and names the line. So are a
// duplicate key and a truncated file of [FormatSettings]. An empty file has no settings.
func ParseSettings(b []byte) (map[string]string, error) {
	s, skipped, err := ReadSettings(b)
	if err != nil || skipped != nil {
		return nil, cmp.Or(err, fmt.Errorf("%w: %w", ErrSettings, skipped))
	}
	return s, nil
}

// ReadSettings skips lines that are no settings, and lists them in skipped; of a repeated key it takes the last value.
// The error is about the whole file: it is cut short, not text, or too large.
func ReadSettings(b []byte) (settings map[string]string, skipped, err error) {
	if len(b) > inputfile.MaxBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes, limit %d", ErrSettings, len(b), inputfile.MaxBytes)
	}
	settings = make(map[string]string)
	lines := make(map[string]int) // by key
	marked, ended := false, false
	var errs []error
	number := 0
	for line := range bytes.Lines(b) {
		number++
		text, key, value, err := splitLine(line)
		switch {
		case err != nil:
		case key == "":
			marked = marked || number == 1 && text == beginMark
			ended = ended || text == endMark
		default:
			if lines[key] > 0 {
				err = fmt.Errorf("key %q is given twice, first in line %d", key, lines[key])
			}
			lines[key], settings[key] = number, value
		}
		if err != nil && len(errs) < maxMistakes {
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
		}
	}
	if marked && !ended {
		return nil, nil, fmt.Errorf("%w: the file is cut short after line %d", ErrSettings, number)
	}
	if bytes.IndexByte(b, 0) >= 0 { // as after a power failure
		return nil, nil, fmt.Errorf("%w: %w", ErrSettings, errors.Join(errs...))
	}
	return settings, errors.Join(errs...), nil
}

// splitLine returns no key for comments and blank lines.
func splitLine(line []byte) (text, key, value string, err error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	text = strings.Trim(string(line), " \t")
	// Tabs are allowed in comments and around the key, not in a value.
	if err := wire.CheckLine(strings.ReplaceAll(text, "\t", " ")); err != nil {
		return "", "", "", err
	}
	if text == "" || text[0] == '#' {
		return text, "", "", nil
	}
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return "", "", "", errors.New("no =, want `key = value`")
	}
	key, value = strings.TrimRight(key, " \t"), strings.TrimLeft(value, " \t")
	if !wire.ValidSettingKey(key) {
		// The key may be part of a secret, so it is not printed.
		return "", "", "", fmt.Errorf("key of %d bytes, want 1 to %d of a-z, A-Z, 0-9, _, . and -",
			len(key), wire.MaxSettingKey)
	}
	if err := wire.CheckLine(value); err != nil {
		return "", "", "", err
	}
	return text, key, value, nil
}

// FormatSettings writes a server.conf that [ParseSettings] reads back unchanged. Each line of the header, which the
// caller has checked, becomes a comment. If a setting would be read back differently, the error wraps [ErrSettings] and
// contains no value.
func FormatSettings(settings map[string]string, header string) ([]byte, error) {
	if err := (wire.Files{Configuration: settings}).Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, beginMark)
	for line := range strings.Lines(header) {
		fmt.Fprintln(&b, strings.TrimSpace("# "+line))
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintln(&b, strings.TrimRight(key+" = "+settings[key], " "))
	}
	fmt.Fprintln(&b, endMark)
	return b.Bytes(), nil
}
