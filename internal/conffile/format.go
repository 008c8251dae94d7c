package conffile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/internal/wire"
)

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
