package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameRealTests keeps docs/threats.md from claiming what no test
// shows any more.
func TestDocumentsNameRealTests(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		"broker": "provisioner/broker", "natsapi": "provisioner/natsapi", "ca": "provisioner/ca", "provisioner": "provisioner",
		"muster": "cmd/muster", "jwt": "jwt", "server": "server", "wire": "internal/wire", "policies": "policies",
		"testbed": "internal/testbed", "seal": "internal/seal", "keyfile": "internal/keyfile", "backup": "provisioner/backup", "console": "provisioner/console", "store": "provisioner/store",
	}
	named := regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) == 0 {
		t.Fatal("docs/threats.md names no test")
	}
	for _, m := range named {
		if !defines(t, dirs[m[1]], m[2]) {
			t.Errorf("docs/threats.md names %s.%s, which does not exist", m[1], m[2])
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

// TestDocumentsNameRealFiles keeps links and paths in the documents true.
func TestDocumentsNameRealFiles(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		b, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(doc), m[1], err)
			}
		}
		for _, m := range regexp.MustCompile("`((?:server|provisioner|internal|jwt|policies|cmd)/[\\w/.-]+)`").FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Errorf("%s names %s: %v", filepath.Base(doc), m[1], err)
			}
		}
	}
}
