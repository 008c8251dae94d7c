package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/testdoc"
	"muster/server/servercmd"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

const root = "../.."

// TestDocuments checks what every Markdown file of the tree refers to: links with their anchors, paths, and command
// lines, which the real parsers read.
func TestDocuments(t *testing.T) {
	t.Parallel()
	links, paths, commands := 0, 0, 0
	for path, text := range documents(t) {
		prose, fenced := parts(text)
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose, -1) {
			links++
			if err := checkLink(path, m[1]); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(prose, -1) {
			span := strings.Join(strings.Fields(m[1]), " ")
			switch {
			case pathOfTree.MatchString(span):
				paths++
				if _, err := os.Stat(filepath.Join(root, span)); err != nil {
					t.Errorf("%s: path %s: %v", path, span, err)
				}
			case isCommand(span) && !strings.HasSuffix(path, "reference/commands.md"):
				commands++
				if err := parseCommand(t, span, false); err != nil {
					t.Errorf("%s: %s: %v", path, span, err)
				}
			}
		}
		for _, line := range fenced {
			if isCommand(line) && !strings.HasSuffix(path, "reference/commands.md") {
				commands++
				if err := parseCommand(t, line, true); err != nil {
					t.Errorf("%s: %s: %v", path, line, err)
				}
			}
		}
	}
	if links < 80 || paths < 40 || commands < 150 {
		t.Errorf("found %d links, %d paths and %d commands only", links, paths, commands)
	}
}

// TestRunbookQuotesRealMessages finds each message that the runbook quotes in the source: code in backquotes that begins
// with two words in lower case.
func TestRunbookQuotesRealMessages(t *testing.T) {
	t.Parallel()
	foreign := []string{"resource limits exceeded for account"} // nats-server's
	var source strings.Builder
	for _, dir := range []string{"provisioner", "server", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			source.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "docs/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	prose, _ := parts(string(b))
	quoted := 0
	for _, m := range regexp.MustCompile("`([a-z]+ [a-z][^`]*)`").FindAllStringSubmatch(prose, -1) {
		if isCommand(m[1]) || slices.Contains(foreign, m[1]) {
			continue
		}
		quoted++
		for part := range strings.SplitSeq(m[1], "…") {
			for part := range strings.SplitSeq(part, ": ") {
				part = strings.TrimSpace(strings.TrimSuffix(part, "N"))
				if !strings.Contains(source.String(), part) {
					t.Errorf("docs/runbook.md quotes %q, but no source has %q", m[1], part)
				}
			}
		}
	}
	if quoted < 8 {
		t.Errorf("found %d messages only", quoted)
	}
}

// documents returns the text of every Markdown file of the tree by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root+"/")] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parts returns a document without its fenced blocks, and the lines of those blocks; lines continued with \ are joined.
func parts(text string) (prose string, fenced []string) {
	var b strings.Builder
	inside, continued := false, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
			continue
		}
		if !inside {
			b.WriteString(line)
			continue
		}
		line = strings.TrimSpace(line)
		body := strings.TrimSuffix(line, `\`)
		if continued {
			fenced[len(fenced)-1] += " " + strings.TrimSpace(body)
		} else {
			fenced = append(fenced, strings.TrimSpace(body))
		}
		continued = body != line
	}
	return b.String(), fenced
}

// checkLink returns why a link of a document leads nowhere. Links to other sites are not followed.
func checkLink(doc, link string) error {
	if strings.Contains(link, "://") {
		return nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := filepath.Join(root, filepath.Dir(doc), file)
	if file == "" {
		target = filepath.Join(root, doc)
	}
	if _, err := os.Stat(target); err != nil || anchor == "" {
		return err
	}
	b, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	prose, _ := parts(string(b))
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose, -1) {
		if slug(m[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("no heading has the anchor %s", anchor)
}

// slug returns the anchor that GitHub makes of a heading.
func slug(heading string) string {
	kept := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

var (
	pathOfTree  = regexp.MustCompile(`^(\.ci|cmd|deploy|docs|examples|internal|jwt|policies|provisioner|server|tools)/[\w/.-]+$`)
	commandLine = regexp.MustCompile(`^muster(-server)? [a-z]`)
	labelOfKey  = regexp.MustCompile(` v1(\\n)?$`) // such as "muster proof v1", a label of the protocol
)

func isCommand(text string) bool {
	return commandLine.MatchString(text) && !labelOfKey.MatchString(text)
}

// parseCommand returns what the parser of muster or muster-server has against a command line. In prose arguments may be
// left out, so there a line that is not whole is right.
func parseCommand(t *testing.T, line string, whole bool) error {
	t.Helper()
	words := shellWords(t, line)
	app := kingpin.New(words[0], "").Terminate(nil)
	if words[0] == program {
		addVerbs(app, verbs{})
	} else {
		servercmd.AddRun(app, cli.Verbs{})
		servercmd.AddDoctor(app, cli.Verbs{})
		servercmd.AddCertificate(app, cli.Verbs{})
		servercmd.AddCertmonger(app, cli.Verbs{})
		servercmd.AddVersion(app, cli.Verbs{})
	}
	app.UsageWriter(io.Discard)
	args := slices.DeleteFunc(words[1:], func(arg string) bool { return arg == "..." })
	_, err := app.ParseContext(args)
	if whole && err == nil {
		_, err = app.Parse(args)
	}
	if err == nil || !whole && strings.HasPrefix(err.Error(), "expected argument for flag") {
		return nil
	}
	return err
}

// TestCommandsAreDocumented holds docs/reference/commands.md to the commands and flags.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	app := kingpin.New(program, "")
	addVerbs(app, verbs{})
	var b strings.Builder
	used := map[string]bool{}
	b.WriteString("| command | purpose | flags |\n|---|---|---|\n")
	for _, c := range cli.Commands(app.Model().CmdGroupModel) {
		fmt.Fprintf(&b, "| `%s %s` | %s | %s |\n", program, c.Usage, c.Help, describeFlags(c.AllFlags, used))
	}
	b.WriteString("\n## Flags\n\n| flag | meaning |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		value, help, _ := cli.FlagText(name)
		fmt.Fprintf(&b, "| `--%s` | %s |\n", strings.TrimSpace(name+" "+value), help)
	}
	testdoc.Generated(t, filepath.Join(root, "docs/reference/commands.md"), *update, b.String())
}

// describeFlags returns flags with their defaults, without those that the head of the page names, and notes that they are
// used.
func describeFlags(flags []*kingpin.FlagModel, used map[string]bool) string {
	common := []string{"config", "url", "login", "output", "utc"}
	var names []string
	for _, f := range flags {
		used[f.Name] = true
		name := "`--" + f.Name + "`"
		if given := cli.FlagDefault(f); given != "" {
			name += " (" + given + ")"
		}
		if !slices.Contains(common, f.Name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}
