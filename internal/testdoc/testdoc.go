// Package testdoc lets a test write the generated part of a document, and hold the document to it.
package testdoc

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Generated compares what follows the first line of the document that begins with "<!-- generated" with the text. With
// update it writes the text there instead. What stands above that line is written by hand.
func Generated(t *testing.T, path string, update bool, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(b), "\n<!-- generated")
	line, old, _ := strings.Cut(rest, "\n")
	if !found {
		t.Fatalf("%s has no line that begins with <!-- generated", path)
	}
	if old == text {
		return
	}
	if !update {
		t.Errorf("%s is out of date: run go test -run %s -update", path, t.Name())
		return
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%s\n<!-- generated%s\n%s", head, line, text), 0o600); err != nil {
		t.Fatal(err)
	}
}
