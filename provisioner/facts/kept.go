package facts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"muster/policies"
)

// DefaultKept are the facts that are kept of every node: what system it is,
// what for, and where. They are few, since each record has them, and of kinds that
// many machines share, so that they take next to nothing in memory.
func DefaultKept() []string {
	return []string{"os.name", "os.release.full", "role", "environment", "datacenter", "rack"}
}

// MaxKept bounds how many facts are kept of each node; chosen. With
// [MaxBytes] a record grows by 3.2 kB at most, and by 100 bytes as a rule.
const MaxKept = 16

// CheckKept returns what is wrong with the names of facts to be kept.
func CheckKept(names []string) (errs []error) {
	if n := len(names); n > MaxKept {
		errs = append(errs, fmt.Errorf("%d facts to be kept of each node, limit %d", n, MaxKept))
	}
	for i, name := range names {
		switch {
		case !isName(name):
			errs = append(errs, fmt.Errorf("fact %.80q: want a name of 1 to %d letters, digits and _ - : / with dots between them", name, maxNameBytes))
		case policies.IsSecretName(name):
			errs = append(errs, fmt.Errorf("fact %q: is called as secrets are, and those are kept nowhere", name))
		case slices.Contains(names[:i], name):
			errs = append(errs, fmt.Errorf("fact %q: named twice", name))
		}
	}
	return errs
}

// isName reports whether a fact that is called so can be kept.
func isName(name string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:/."
	return len(name) <= maxNameBytes && strings.Trim(name, chars) == "" && !slices.Contains(strings.Split(name, "."), "")
}

// Kept returns those of the facts that are looked for and can be kept: whole, or not at all, so that a filter by a value
// finds every node that says it. Left out are values of more than [MaxBytes], those of several lines, and secrets
// by their shape.
func (f *Finder) Kept(facts json.RawMessage) (kept Facts) {
	f.find(facts, func(name, value string) {
		if value == "" || len(value) > MaxBytes || !isOneLine(value) || policies.HasSecret(value) {
			return
		}
		if kept == nil {
			kept = make(Facts, 0, len(f.names))
		}
		kept = append(kept, Fact{name, value})
	})
	return kept
}

// isOneLine reports whether a text has no control characters.
func isOneLine(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) < 0
}
