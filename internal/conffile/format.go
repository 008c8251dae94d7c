package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/internal/inputfile"
	"muster/internal/wire"
)

// FormatSettings writes a server.conf that [ParseSettings] reads back unchanged. The header becomes comments. If
// text would be read back differently, the error wraps [ErrSettings] and contains no value.
func FormatSettings(settings map[string]string, header string) ([]byte, error) {
	var errs []error
	bad := func(format string, args ...any) {
		if len(errs) < maxMistakes {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, beginMark)
	if header != "" {
		for line := range strings.SplitSeq(strings.TrimSuffix(header, "\n"), "\n") {
			comment := strings.TrimRight("# "+line, " ")
			if err := checkText(comment); err != nil {
				bad("header: %v", err)
			}
			if comment == endMark {
				bad("header: line %q would end the file", comment)
			}
			fmt.Fprintln(&b, comment)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := settings[key]
		if !wire.ValidSettingKey(key) {
			bad("key %.140q: want 1 to %d of a-z, A-Z, 0-9, _, . and -", key, wire.MaxSettingKey)
		}
		if err := checkText(value); err != nil {
			bad("key %q: its value has %v", key, err)
		}
		if strings.Trim(value, " ") != value {
			bad("key %q: its value begins or ends with a blank", key)
		}
		fmt.Fprintln(&b, strings.TrimRight(key+" = "+value, " "))
	}
	fmt.Fprintln(&b, endMark)
	if b.Len() > inputfile.MaxBytes {
		bad("%d bytes, limit %d", b.Len(), inputfile.MaxBytes)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrSettings, errors.Join(errs...))
	}
	return b.Bytes(), nil
}
