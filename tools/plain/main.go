// Command plain holds the tree to plain words. With file and line it refuses:
//   - pronouns that stand for nodes, keys and people alike, in comments, texts of the program and documents;
//   - lines over 120 columns in documents and in code, tests aside. A tab counts four columns. Tables may be longer.
//
// It also refuses more than 1.3 words of comments for each line of code. It exits with 1 if it refuses anything.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns    = 120
	maxWordsALine = 1.3 // words of comments for each line of code: age has 1.26, rqlite 0.9
)

var (
	pronoun = regexp.MustCompile(`(?i)\b(who|whoever|whom|nobody|somebody|others)\b`)
	// allowed are uses that are right.
	allowed = strings.NewReplacer("user nobody", "the system's user")

	word    = regexp.MustCompile(`[\pL][\pL'-]*`)
	kinds   = []string{".go", ".md", ".rego", ".html", ".tmpl", ".yaml", ".yml", ".sh"}
	skipped = []string{".git", "node_modules", "testdata", "bin", "dist", "screenshots", "plain"}
)

func main() {
	var t tree
	if err := filepath.WalkDir(os.Args[1], t.visit); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
	if limit := maxWordsALine * float64(t.lines); float64(t.words) > limit {
		t.refused++
		fmt.Fprintf(os.Stderr, "%d words of comments on %d lines of code, limit %.0f: say why, and no more\n",
			t.words, t.lines, limit)
	}
	if t.refused > 0 {
		os.Exit(1)
	}
}

// A tree counts what was read so far.
type tree struct {
	refused      int
	words, lines int // of comments and of code, tests aside
}

func (t *tree) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if d.IsDir() {
		if slices.Contains(skipped, d.Name()) {
			return fs.SkipDir
		}
		return nil
	}
	kind := filepath.Ext(path)
	if !slices.Contains(kinds, kind) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if kind == ".go" {
		t.source(path, text)
	} else {
		t.pronouns(path, 1, string(text))
	}
	if kind == ".go" && !strings.HasSuffix(path, "_test.go") || kind == ".md" {
		t.columns(path, kind, string(text))
	}
	return nil
}

// source checks comments and, outside of tests, string literals.
func (t *tree) source(path string, text []byte) {
	test := strings.HasSuffix(path, "_test.go")
	file := token.NewFileSet().AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	last := 0
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return
		}
		line := file.Line(pos)
		if tok == token.COMMENT || tok == token.STRING && !test {
			t.pronouns(path, line, literal)
		}
		switch {
		case test || tok == token.SEMICOLON && literal == "\n":
		case tok == token.COMMENT:
			t.words += len(word.FindAllString(literal, -1))
		default:
			end := line + strings.Count(literal, "\n")
			t.lines += max(0, end-max(line-1, last))
			last = max(last, end)
		}
	}
}

// pronouns refuses each pronoun of a text that begins at a line of a file.
func (t *tree) pronouns(path string, first int, text string) {
	for i, line := range strings.Split(text, "\n") {
		for _, found := range pronoun.FindAllString(allowed.Replace(line), -1) {
			t.refuse(path, first+i, fmt.Sprintf("%q: name the node, key, program or person that is meant", found))
		}
	}
}

func (t *tree) columns(path, kind, text string) {
	for i, line := range strings.Split(text, "\n") {
		n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
		table := strings.HasPrefix(strings.TrimSpace(line), "|") || strings.Contains(line, "](http")
		if n <= maxColumns || kind == ".md" && table {
			continue
		}
		t.refuse(path, i+1, fmt.Sprintf("%d columns, limit %d", n, maxColumns))
	}
}

func (t *tree) refuse(path string, line int, what string) {
	t.refused++
	fmt.Fprintf(os.Stderr, "%s:%d: %s\n", path, line, what)
}
