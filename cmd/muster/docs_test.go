package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// TestDocumentsHaveCommandsThatAre has the real parser look at each command that the documents
// tell to type: in a line of its own, which is whole, and within a sentence, where arguments may
// be left out. No command and no flag is one that there is not.
func TestDocumentsHaveCommandsThatAre(t *testing.T) {
	t.Parallel()
	var docs []string
	for _, pattern := range []string{"../../README.md", "../../CONTRIBUTING.md", "../../docs/*.md", "../../policies/*.md", "../../examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	// In sentences; "muster proof v1" and the like are labels of the protocol.
	said := regexp.MustCompile("`" + program + " [a-z][^`]+`")
	label := regexp.MustCompile(` v1(\\n)?` + "`$")
	lines, spans := 0, 0
	for _, doc := range docs {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		fenced, open, line := false, false, ""
		for text := range strings.Lines(string(b)) {
			text = strings.TrimRight(text, "\n")
			if strings.HasPrefix(strings.TrimSpace(text), "```") {
				fenced = !fenced
				continue
			}
			if !fenced {
				continue
			}
			if open {
				line += " " + strings.TrimSpace(text)
			} else {
				line = strings.TrimSpace(text)
			}
			if open = strings.HasSuffix(line, `\`); open {
				line = strings.TrimSpace(strings.TrimSuffix(line, `\`))
			} else if strings.HasPrefix(line, program+" ") && !strings.HasPrefix(line, program+" --") {
				lines++
				if err := typed(t, line, true); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(doc), line, err)
				}
			}
		}
		for _, span := range said.FindAllString(strings.ReplaceAll(string(b), "\n", " "), -1) {
			if label.MatchString(span) {
				continue
			}
			spans++
			if err := typed(t, strings.Trim(span, "`"), false); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(doc), span, err)
			}
		}
	}
	if lines < 15 || spans < 100 {
		t.Errorf("%d lines and %d commands in sentences were looked at: where are the others?", lines, spans)
	}
}

// typed returns what the parser has against a command line, of which all is there or not.
func typed(t *testing.T, line string, whole bool) error {
	t.Helper()
	app := kingpin.New(program, "").Terminate(nil)
	addVerbs(app, verbs{})
	app.UsageWriter(io.Discard)
	args := slices.DeleteFunc(shellWords(t, line)[1:], func(arg string) bool { return arg == "..." })
	_, err := app.ParseContext(args)
	if whole && err == nil {
		_, err = app.Parse(args)
	}
	if err == nil || !whole && strings.HasPrefix(err.Error(), "expected argument for flag") {
		return nil
	}
	return err
}
