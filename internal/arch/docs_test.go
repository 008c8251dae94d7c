package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsNameRealTests keeps docs/security.md from claiming what no test
// shows any more.
func TestDocumentsNameRealTests(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		"broker": "provisioner/broker", "natsapi": "provisioner/natsapi", "ca": "provisioner/ca",
		"provisioner": "provisioner",
		"attacks":     "internal/attacks", "muster": "cmd/muster", "jwt": "jwt", "server": "server", "agenttrust": "server/trust",
		"wire":     "internal/wire",
		"policies": "policies",
		"testbed":  "internal/testbed", "seal": "internal/seal", "keyfile": "internal/keyfile",
		"choria": "provisioner/choria", "puppet": "provisioner/puppet",
		"backup": "provisioner/backup", "console": "provisioner/console", "store": "provisioner/store",
	}
	named := regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) == 0 {
		t.Fatal("docs/security.md names no test")
	}
	for _, m := range named {
		if !defines(t, dirs[m[1]], m[2]) {
			t.Errorf("docs/security.md names %s.%s, which does not exist", m[1], m[2])
		}
	}
}

// defines reports whether a test file of the directory, or of those with a fleet
// below it, has the function.
func defines(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join("../..", dir, "withfleet", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, more...) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

// TestEveryLogKeyIsDocumented holds the table of docs/reference/log.md to the keys that are logged.
func TestEveryLogKeyIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/reference/log.md")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`[^|]+) \|`).FindAllStringSubmatch(string(doc), -1) {
		for _, key := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			said[key[1]] = true
		}
	}
	logged := make(map[string]string)
	for _, dir := range []string{"jwt", "policies", "provisioner", "server", "internal/daemon", "internal/discover",
		"internal/seal", "cmd"} {
		maps.Copy(logged, keysLogged(t, filepath.Join("../..", dir)))
	}
	if len(logged) < 50 {
		t.Fatalf("only %d keys are logged: %v", len(logged), logged)
	}
	for _, key := range slices.Sorted(maps.Keys(logged)) {
		if !said[key] {
			t.Errorf("%s logs %q, which docs/reference/log.md does not have", logged[key], key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if logged[key] == "" {
			t.Errorf("docs/reference/log.md has the key %q, which is never logged", key)
		}
	}
}

// keysLogged returns the keys of attributes that are logged below a directory, each with a
// file that does so.
func keysLogged(t *testing.T, dir string) map[string]string {
	t.Helper()
	keys := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "LogValue" {
				return false // they are below the key of the value
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for i := firstKey(call); i < len(call.Args); i += 2 {
				if key, ok := call.Args[i].(*ast.BasicLit); ok && key.Kind == token.STRING {
					keys[strings.Trim(key.Value, `"`)] = path
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// firstKey returns which argument of a call is the first key of an attribute, if there is one: of
// slog's functions, of the agent's own way to say a thing once, and of an append to what is to
// be logged. Of other calls it returns one that is not there.
func firstKey(call *ast.CallExpr) int {
	var on, name string
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
		switch x := f.X.(type) {
		case *ast.Ident:
			on = x.Name
		case *ast.SelectorExpr:
			on = x.Sel.Name
		}
	}
	switch name {
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return 2
	case "Debug", "Info", "Warn", "Error":
		if strings.EqualFold(on, "log") {
			return 1
		}
	case "Log", "report":
		return 3
	case "problem":
		return 5
	case "append":
		if to, ok := call.Args[0].(*ast.Ident); ok && to.Name == "attrs" {
			return 1
		}
	case "Any", "Bool", "Duration", "Int", "Int64", "String", "Time":
		if on == "slog" {
			return 0
		}
	}
	return len(call.Args)
}
