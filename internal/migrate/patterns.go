package migrate

import (
	"regexp"
	"strings"

	"muster/internal/wire"
)

// simple matches expressions whose parts are parts of patterns, up to the end of the name.
var simple = regexp.MustCompile(`^(\^?)(\.[*+])?((?:[a-z0-9-]|\\\.|\[\^\.\][*+]?)+)\$$`)

var globs = strings.NewReplacer(`\.`, ".", "[^.]*", "*", "[^.]+", "?*", "[^.]", "?")

// Patterns returns patterns that match the same identities as a regular expression of cert_deny_list, or nil if there
// are none.
func Patterns(expr string) (all []wire.Pattern) {
	m := simple.FindStringSubmatch(bare(expr))
	if m == nil {
		return nil
	}
	name := globs.Replace(m[3])
	texts := []string{name}
	switch free := m[1] == "" || m[2] != ""; {
	case free && name[0] == '.': // no name begins with a dot
		texts = []string{"**" + name}
	case free && m[2] != ".+":
		texts = []string{"*" + name, "**.*" + name}
	case free || name == "*": // as a pattern, * covers all names
		return nil
	}
	for _, text := range texts {
		p, err := wire.ParsePattern(text)
		if err != nil {
			return nil
		}
		all = append(all, p)
	}
	return all
}
