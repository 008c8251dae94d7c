// Package facts finds, keeps, shows and filters facts of nodes. They are unproven.
package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// A Fact is a string, number or boolean, as text.
type Fact struct{ Name, Value string }

var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Filter returns the filter for exactly this fact, see [ParseFilter].
func (f Fact) Filter() string { return f.Name + "=" + literally.Replace(f.Value) }

// Facts are sorted by name, without duplicates. In JSON they are an object of strings. They must not be changed:
// records share them.
type Facts []Fact

// Value returns the value of a fact, or "".
func (f Facts) Value(name string) string {
	i, ok := slices.BinarySearchFunc(f, name, func(a Fact, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return ""
	}
	return f[i].Value
}

// MarshalJSON implements [json.Marshaler].
func (f Facts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, fact := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = wire.AppendJSON(b, fact.Name) // cannot fail for a string
		b, _ = wire.AppendJSON(append(b, ':'), fact.Value)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Facts) UnmarshalJSON(b []byte) error {
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*f = nil
	for _, name := range slices.Sorted(maps.Keys(m)) {
		*f = append(*f, Fact{name, m[name]})
	}
	return nil
}

// A Filter selects nodes by a fact. Make one with [ParseFilter].
type Filter struct {
	Name  string
	Value string // * and ? are wildcards

	pattern string // for path.Match, with slashes replaced
}

// ParseFilter reads NAME=VALUE.
func ParseFilter(text string) (Filter, error) {
	name, value, ok := strings.Cut(text, "=")
	_, err := path.Match(value, "")
	if !ok || name == "" || err != nil {
		return Filter{}, fmt.Errorf("fact %.80q, want NAME=VALUE", text)
	}
	return Filter{Name: name, Value: value, pattern: noSlash(value)}, nil
}

// Match reports whether a value matches.
func (f Filter) Match(value string) bool {
	ok, _ := path.Match(f.pattern, noSlash(value))
	return ok
}

// noSlash replaces slashes, which path.Match treats as separators.
func noSlash(text string) string { return strings.ReplaceAll(text, "/", "\x00") }

// DefaultKept returns the facts kept by default. They are few and have few different values, so that they take little
// memory.
func DefaultKept() []string {
	return []string{"os.name", "os.release.full", "role", "environment", "datacenter", "rack"}
}

// MaxKept and [MaxBytes] bound a record's growth to 3.2 kB; 100 bytes are usual.
const MaxKept = 16

// CheckKept returns what is wrong with the names of kept facts.
func CheckKept(names []string) (errs []error) {
	if n := len(names); n > MaxKept {
		errs = append(errs, fmt.Errorf("%d facts to keep with each record, limit %d", n, MaxKept))
	}
	for i, name := range names {
		switch {
		case !isName(name):
			errs = append(errs, fmt.Errorf("fact %.80q: want a name of 1 to %d letters, digits and _ - : / with "+
				"dots between them", name, maxNameBytes))
		case policies.IsSecretName(name):
			errs = append(errs, fmt.Errorf("fact %q: the name suggests a secret, and secrets are not kept", name))
		case slices.Contains(names[:i], name):
			errs = append(errs, fmt.Errorf("fact %q: named twice", name))
		}
	}
	return errs
}

func isName(name string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-:/."
	return len(name) <= maxNameBytes && strings.Trim(name, chars) == "" &&
		!slices.Contains(strings.Split(name, "."), "")
}

// Kept returns the wanted facts. Values are never cut, so that a filter finds every node. Long values, several lines
// and likely secrets are left out.
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

func isOneLine(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) < 0
}

// DefaultShown returns the facts shown by default: those that tell machines apart, named as in Facter, Ansible and
// Choria. Other facts may be secrets.
func DefaultShown() []string {
	return []string{
		"hostname", "fqdn", "domain", "serialnumber", "uuid", "manufacturer", "productname", "virtual", "is_virtual",
		"macaddress", "ipaddress", "architecture", "osfamily", "operatingsystem", "operatingsystemrelease",
		"os.name", "os.family", "os.release.full", "dmi.manufacturer", "dmi.product.name", "dmi.product.serial_number",
		"dmi.product.uuid",
		"networking.fqdn", "networking.ip", "networking.mac", "role", "rack", "site", "datacenter",
	}
}

// Bounds per pending node, below 16 KiB together.
const (
	MaxShown     = 64
	maxNameBytes = 64
	MaxBytes     = 128 // of a value
)

// Shown returns the wanted facts, cut to [MaxBytes].
func (f *Finder) Shown(facts json.RawMessage) map[string]string {
	shown := make(map[string]string)
	f.find(facts, func(name, value string) {
		shown[name] = events.Scrub(strings.ToValidUTF8(events.Cut(value, MaxBytes), ""))
	})
	return shown
}
