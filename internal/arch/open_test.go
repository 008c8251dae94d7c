package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamedFilesHaveOneOpener wants files to be opened by package inputfile, which judges what a file is. The
// listed sources open directories or files of the kernel.
func TestNamedFilesHaveOneOpener(t *testing.T) {
	t.Parallel()
	directories := map[string]bool{
		"provisioner/httpapi/socket.go": true,
		"internal/disk/disk.go":         true,
		"internal/disk/space.go":        true,
		"internal/setup/staging.go":     true,
	}
	found := 0
	for _, top := range []string{"cmd", "internal", "jwt", "policies", "provisioner", "server"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, e fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				isTool(filepath.Dir(name)) && !strings.HasPrefix(name, "cmd/") ||
				strings.HasPrefix(name, "internal/inputfile/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch call := opened(n); {
				case call == "":
				case call == "Open" && directories[name]:
					found++
				default:
					t.Errorf("%s calls os.%s: use package inputfile", name, call)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no call was found: the test looks at the wrong files")
	}
}

// opened returns the function of package os by which a call opens an existing file; "" for other nodes.
func opened(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if on, ok := f.X.(*ast.Ident); !ok || on.Name != "os" && on.Name != "tls" {
		return ""
	}
	switch f.Sel.Name {
	case "Open", "ReadFile", "LoadX509KeyPair":
		return f.Sel.Name
	case "OpenFile":
		for _, arg := range call.Args {
			if makesNew(arg) {
				return ""
			}
		}
		return f.Sel.Name
	}
	return ""
}

func makesNew(flags ast.Expr) bool {
	exclusive := false
	ast.Inspect(flags, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		exclusive = exclusive || ok && id.Name == "O_EXCL"
		return true
	})
	return exclusive
}
