package wire

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrPattern means an invalid pattern.
var ErrPattern = errors.New("not a valid identity pattern")

// A Pattern selects identities label by label: `web*.example.net` does not cover web1.evil.example.net. `*` matches
// any characters and `?` one. `**` as first label matches one or more labels. A pattern of only `*` matches
// everything.
type Pattern string

// ParsePattern returns s as a pattern. The error wraps [ErrPattern].
func ParsePattern(s string) (Pattern, error) {
	if s == "" {
		return "", fmt.Errorf("%w: empty", ErrPattern)
	}
	if len(s) > MaxIdentityBytes {
		return "", fmt.Errorf("%w: %d bytes, limit %d", ErrPattern, len(s), MaxIdentityBytes)
	}
	last := ""
	for i, label := range strings.Split(s, ".") {
		last = label
		if label == "" {
			return "", fmt.Errorf("%w: %q: an empty label (leading, trailing or doubled dot)", ErrPattern, s)
		}
		if strings.Contains(label, "**") && (label != "**" || i > 0 || s == "**") {
			return "", fmt.Errorf("%w: %q: ** may only be the first label, with further labels behind it",
				ErrPattern, s)
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '*' && c != '?' {
				return "", fmt.Errorf("%w: %q has %q, want a-z, 0-9, -, * and ?", ErrPattern, s, c)
			}
		}
	}
	if isNumber(last) {
		return "", fmt.Errorf("%w: %q: the last label is a number, as of no name", ErrPattern, s)
	}
	return Pattern(s), nil
}

// Match reports whether p selects id.
func (p Pattern) Match(id Identity) bool {
	if p == "*" {
		return true
	}
	want, have := strings.Split(string(p), "."), strings.Split(string(id), ".")
	if want[0] == "**" {
		want = want[1:]
		if len(have) <= len(want) {
			return false
		}
		have = have[len(have)-len(want):]
	}
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
