package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"muster/internal/wire"
)

// maxBadNames is how many names that are none are reported.
const maxBadNames = 10

// identities returns the machines that are named, or those of a file with a name on each line, "-" for
// standard input; each once and in order.
func identities(names []string, from string) ([]wire.Identity, error) {
	if from == "" {
		return parseNames(names, func(int) string { return "" })
	}
	file, read := from, os.ReadFile
	if from == "-" {
		file, read = "standard input", func(string) ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	b, err := read(from)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(b, []byte("-----BEGIN ")) { // perhaps a private key, of which no line is to be shown
		return nil, fmt.Errorf("%s: PEM, want names of machines, one a line", file)
	}
	lines := strings.Split(string(b), "\n")
	for i, line := range lines {
		if lines[i] = strings.TrimSpace(line); strings.HasPrefix(lines[i], "#") {
			lines[i] = ""
		}
	}
	ids, err := parseNames(lines, func(i int) string { return fmt.Sprintf("%s: line %d: ", file, i+1) })
	if err == nil && len(ids) == 0 {
		return nil, fmt.Errorf("%s has no names", file)
	}
	return ids, err
}

// parseNames returns the identities that names are, empty ones apart, each once. The error lists the names that
// are none, the first of them, with their places: a file of another kind has nothing else.
func parseNames(names []string, place func(int) string) ([]wire.Identity, error) {
	var ids []wire.Identity
	var errs []error
	seen := map[wire.Identity]bool{}
	for i, name := range names {
		if name == "" {
			continue
		}
		id, err := wire.ParseIdentity(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", place(i), err))
		} else if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if more := len(errs) - maxBadNames; more > 0 {
		errs = append(errs[:maxBadNames], fmt.Errorf("and %d more: is it the right file?", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return ids, nil
}
