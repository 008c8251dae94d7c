package policies

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/wire"
)

// maxFileBytes bounds a file. The data may list every node: 100,000 names of 100 bytes are 10 MB.
const maxFileBytes = 32 << 20

// maxUnread bounds the files that are named as not read.
const maxUnread = 10

// A source is a file that was read.
type source struct {
	path    string // for error messages
	name    string // relative to the configured path, with slashes
	content []byte
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.rego") }
func (s source) isData() bool { return !strings.HasSuffix(s.name, ".rego") }

// wanted selects the same file names as OPA's bundles and `opa test DIR`.
func wanted(name string) bool {
	switch path.Base(name) {
	case "data.json", "data.yaml", "data.yml":
		return true
	default:
		return strings.HasSuffix(name, ".rego")
	}
}

// hidden excludes files of editors and version control, and the dated directories of Kubernetes config maps: visible
// names link to those.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// read returns errors of the file system, or [ErrInvalid] if there is no policy.
func read(paths []string, judge func(path string) error) ([]source, error) {
	var all []source
	var unread []error
	for _, p := range paths {
		found, err := readPath(p, judge)
		unread = append(unread, err)
		all = append(all, found...)
	}
	if err := errors.Join(unread...); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.path, b.path))
	})
	if !slices.ContainsFunc(all, func(s source) bool { return !s.isTest() && !s.isData() }) {
		return nil, fmt.Errorf("%w: no policy (*.rego) in %s: "+
			"want a Rego file that is not a test, or a directory with one",
			ErrInvalid, strings.Join(paths, ", "))
	}
	return all, nil
}

func readPath(p string, judge func(string) error) ([]source, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, fmt.Errorf("policy: %w: want a Rego file, or a directory of them", err)
	}
	if !info.IsDir() {
		dir, name := filepath.Split(p)
		one, err := readFile(dir, name, judge)
		return []source{one}, err
	}
	var all []source
	err = walk(p, func(name string) error {
		if !wanted(name) {
			return nil
		}
		one, err := readFile(p, name, judge)
		all = append(all, one)
		return err
	})
	return all, err
}

func readFile(root, name string, judge func(string) error) (source, error) {
	file := source{path: filepath.Join(root, name), name: name}
	if judge != nil {
		if err := judge(file.path); err != nil {
			return file, err
		}
	}
	var err error
	if file.content, err = inputfile.Read(file.path, inputfile.Configured, maxFileBytes); err == nil {
		file.content, err = inputfile.Text(file.content, file.path)
	}
	return file, err
}

// walk visits the files below dir that are not hidden. It follows no links to directories.
func walk(dir string, visit func(name string) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && hidden(d.Name()) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() && !wanted(name) || hidden(d.Name()):
			return nil
		}
		return visit(name)
	})
}

// unread returns a line for each file in a directory of paths that is neither policy nor data. Such a file may be data
// under a wrong name. Documents (*.md) are expected there.
func unread(paths []string) (lines []string) {
	for _, p := range paths {
		_ = walk(p, func(name string) error { // read has had its errors
			if !wanted(name) && path.Ext(name) != ".md" {
				lines = append(lines, filepath.Join(p, name)+
					" is not read: want *.rego, data.json, data.yaml or data.yml")
			}
			return nil
		})
	}
	if more := len(lines) - maxUnread; more > 0 {
		lines = append(lines[:maxUnread], fmt.Sprintf("%d more files are not read", more))
	}
	return lines
}

// digest returns the hex SHA-256 over the selected files. Each text is preceded by its length, so that different files
// never share an encoding.
func digest(all []source, keep func(source) bool) string {
	h := sha256.New()
	text := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	text([]byte("muster policy v1"))
	for _, s := range all {
		if keep(s) {
			text([]byte(s.name))
			text(s.content)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

var (
	//go:embed builtin/default.rego
	defaultRego string
	//go:embed builtin/default_test.rego
	defaultTestRego string
	//go:embed builtin/open.rego
	openRego string
	//go:embed builtin/open_test.rego
	openTestRego string
	//go:embed builtin/certificate.rego
	serviceRego string
)

// Builtin returns the files of a built-in policy and its tests, by file name. The default policy admits nodes on
// record, and names of the allow-list or of the token. The open policy, for labs, admits any new name.
func Builtin(open bool) map[string]string {
	if open {
		return map[string]string{"open.rego": openRego, "open_test.rego": openTestRego}
	}
	return map[string]string{"default.rego": defaultRego, "default_test.rego": defaultTestRego}
}

// data merges the data files into one document.
func data(all []source) (map[string]any, error) {
	root := make(map[string]any)
	for _, s := range all {
		if !s.isData() {
			continue
		}
		if strings.Contains(s.name, "/") {
			return nil, fmt.Errorf("%s: data file in a subdirectory: move it to the directory of the policy", s.path)
		}
		// Duplicate keys are refused: only the last one would count.
		strict := conffile.CheckYAML
		if strings.HasSuffix(s.name, ".json") {
			strict = func(b []byte) error { return wire.CheckStrict(b) }
		}
		if err := strict(s.content); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		var document any
		if err := util.Unmarshal(s.content, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		object, ok := document.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: is of type %s, want an object", s.path,
				ast.ValueName(ast.MustInterfaceToValue(document)))
		}
		for name, value := range object {
			if _, twice := root[name]; twice {
				return nil, fmt.Errorf("%s: data.%s is given twice", s.path, name)
			}
			root[name] = value
		}
	}
	if _, ok := root["muster"]; ok {
		return nil, errors.New("data.muster is reserved for policies")
	}
	return root, nil
}
