// Package arch holds one test: the import graph of docs/architecture.md.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// graph says which packages of this module each package may import, tests
// apart. A package that is not listed may import none. A new arrow here is a
// decision: it wants a line in docs/adr.
var graph = map[string][]string{
	"internal/wire":       {},
	"internal/conffile":   {"internal/wire"},
	"internal/seal":       {"internal/wire"},
	"internal/discover":   {"internal/wire"},
	"internal/cli":        {},
	"internal/limit":      {},
	"internal/keyfile":    {},
	"jwt":                 {"internal/wire", "internal/keyfile"},
	"policies":            {"internal/wire", "internal/conffile"},
	"provisioner/ca":      {"internal/wire"},
	"provisioner/events":  {"internal/limit", "internal/wire", "jwt"},
	"provisioner/trust":   {"internal/wire", "jwt", "provisioner/ca"},
	"provisioner":         {"internal/limit", "internal/wire", "jwt", "policies", "provisioner/ca", "provisioner/events", "provisioner/facts", "provisioner/trust"},
	"provisioner/facts":   {"internal/wire", "policies", "provisioner/events"},
	"provisioner/login":   {"internal/wire", "jwt", "provisioner", "provisioner/ca", "provisioner/events", "provisioner/trust"},
	"provisioner/operate": {"internal/wire", "jwt", "provisioner", "provisioner/ca", "provisioner/events", "provisioner/trust"},
	"provisioner/store":   {"internal/wire", "jwt", "policies", "provisioner", "provisioner/events", "provisioner/fleet", "provisioner/trust"},
	"provisioner/natsapi": {"internal/limit", "internal/seal", "internal/wire", "provisioner", "provisioner/operate"},
	"provisioner/broker":  {"internal/limit", "internal/seal", "internal/wire", "provisioner/ca"},
	"provisioner/helper":  {"internal/wire"},
	"provisioner/backup":  {"provisioner/trust"},
	"provisioner/httpapi": {"internal/wire", "jwt", "policies", "provisioner", "provisioner/ca", "provisioner/fleet", "provisioner/events", "provisioner/operate", "provisioner/facts", "provisioner/trust", "provisioner/login"},
	"provisioner/console": {"internal/wire", "jwt", "policies", "provisioner", "provisioner/fleet", "provisioner/events", "provisioner/operate", "provisioner/trust", "provisioner/login"},
	"provisioner/fleet":   {"internal/wire", "jwt", "provisioner", "provisioner/events", "provisioner/facts", "provisioner/trust"},
	"provisioner/metrics": {"internal/wire", "provisioner", "provisioner/events", "provisioner/fleet", "provisioner/trust"},
	"provisioner/webhook": {"internal/wire", "provisioner/events"},
	"server": {"internal/wire", "internal/discover", "internal/conffile", "internal/keyfile", "internal/seal", "jwt",
		"server/advice", "server/files", "server/link", "server/orders", "server/trust"},
	"server/advice":    {},
	"server/files":     {},
	"server/link":      {"internal/wire", "internal/discover", "internal/seal", "server/advice"},
	"server/orders":    {"internal/wire", "server/files"},
	"server/trust":     {"internal/keyfile", "internal/wire", "server/advice"},
	"server/servercmd": {"internal/cli", "server"},
	"internal/simnode": {"internal/seal", "internal/wire", "jwt"},
	"internal/bench":   {"internal/daemon", "internal/setup", "internal/seal", "internal/simnode", "internal/wire", "jwt", "provisioner", "provisioner/ca"},
	"internal/demo":    {"internal/wire", "internal/daemon", "internal/setup", "internal/simnode", "jwt", "provisioner", "server", "provisioner/events", "provisioner/operate"},
	"internal/disk":    {},
	"internal/setup": {"internal/wire", "internal/conffile", "internal/daemon", "internal/disk", "internal/keyfile", "internal/seal", "jwt", "policies", "provisioner",
		"provisioner/backup", "provisioner/broker", "provisioner/ca", "provisioner/store", "provisioner/trust"},
	"internal/daemon": {"internal/wire", "internal/conffile", "internal/disk", "internal/discover", "internal/keyfile", "internal/seal", "jwt", "policies", "provisioner",
		"provisioner/ca", "provisioner/backup", "provisioner/broker", "provisioner/console", "provisioner/fleet", "provisioner/helper", "provisioner/httpapi", "provisioner/metrics", "provisioner/natsapi",
		"provisioner/store", "provisioner/webhook", "provisioner/events", "provisioner/operate", "provisioner/facts", "provisioner/trust", "provisioner/login"},
	"internal/testbed": {"internal/seal", "internal/wire", "internal/conffile", "internal/daemon", "internal/setup", "internal/simnode", "internal/testproc", "jwt", "policies", "provisioner",
		"provisioner/ca", "server", "provisioner/broker", "provisioner/webhook", "provisioner/events", "provisioner/operate", "provisioner/trust"},
	"internal/eventcheck":      {"internal/testbed", "provisioner/events"},
	"internal/testdisk":        {"internal/testproc"},
	"examples/cluster/wave":    {"internal/simnode"},
	"examples/websocket/proxy": {},
	"examples/webhook":         {},
}

// owners says which packages may import a dependency, tests apart. One owner
// each, so that it can be replaced in one place.
var owners = map[string][]string{
	"github.com/golang-jwt/jwt":       {"jwt"},
	"github.com/go-json-experiment":   {"internal/wire"},
	"github.com/youmark/pkcs8":        {"internal/keyfile"},
	"github.com/open-policy-agent":    {"policies"},
	"github.com/nats-io/nats-server":  {"provisioner/broker"},
	"github.com/nats-io/jwt":          {"provisioner/broker"},
	"github.com/nats-io/nats.go/jets": {"provisioner/store"},
	"github.com/klauspost/compress":   {"provisioner/backup", "provisioner/store"},
	"github.com/prometheus":           {"provisioner/metrics"},
	"github.com/miekg/dns":            {"internal/discover"},
	"go.yaml.in/yaml":                 {"internal/conffile", "provisioner/httpapi"},
	"github.com/schollz/progressbar":  {"internal/cli"},
	"github.com/agnivade/levenshtein": {"internal/cli"},
	"golang.org/x/term":               {"internal/cli"},
	"golang.org/x/net":                {"server/link", "provisioner/httpapi"},
	"github.com/santhosh-tekuri":      {"internal/eventcheck"},
	"github.com/KimMachineGun":        {"cmd/muster/provisioner"},
	"github.com/chromedp":             {},
	"github.com/zmap":                 {},
	"github.com/google/go-cmp":        {},
	"github.com/rogpeppe/go-internal": {},
}

type listed struct {
	ImportPath                string
	Imports, Deps             []string
	TestImports, XTestImports []string
}

// list returns what `go list` says of the packages.
func list(t *testing.T, patterns ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports"}, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportGraph(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "muster/...") {
		name := strings.TrimPrefix(p.ImportPath, "muster/")
		for _, i := range p.Imports {
			if ours, ok := strings.CutPrefix(i, "muster/"); ok && !strings.HasPrefix(name, "cmd/") && !slices.Contains(graph[name], ours) {
				t.Errorf("%s imports %s, which is against the graph", name, ours)
			}
			if ours, ok := strings.CutPrefix(i, "muster/cmd/"); ok && !downward(name, "cmd/"+ours) {
				t.Errorf("%s imports cmd/%s, which is not below it and not shared", name, ours)
			}
			for dependency, allowed := range owners {
				if strings.HasPrefix(i, dependency) && !slices.Contains(allowed, name) {
					t.Errorf("%s imports %s, which belongs to %v", name, i, allowed)
				}
			}
		}
	}
}

// downward reports whether a package of a command may import another one: the command its nouns, and a noun what
// all of them share.
func downward(name, imported string) bool {
	const nouns, shared = "cmd/muster/", "cmd/muster/internal/"
	return name == "cmd/muster" && strings.HasPrefix(imported, nouns) || strings.HasPrefix(name, nouns) && strings.HasPrefix(imported, shared)
}

// TestEventsOfFleetsAreChecked wants eventcheck wherever tests have fleets.
func TestEventsOfFleetsAreChecked(t *testing.T) {
	t.Parallel()
	// Tests of these start hundreds of processes of themselves, which have no
	// fleets and would all compile schemas.
	without := []string{"muster/cmd/muster", "muster/internal/chaos"}
	const testbed, check = "muster/internal/testbed", "muster/internal/eventcheck"
	found := 0
	for _, p := range list(t, "muster/...") {
		imports := append(p.TestImports, p.XTestImports...)
		if !slices.Contains(imports, testbed) || slices.Contains(without, p.ImportPath) {
			continue
		}
		if found++; !slices.Contains(imports, check) {
			t.Errorf("tests of %s have fleets, and nothing checks their events: import %s", p.ImportPath, check)
		}
	}
	if found == 0 {
		t.Error("no package has tests with fleets")
	}
}

// TestTestsWithFleetsAreApart wants no tests inside a package beside tests of it that
// have a fleet: for those, Go compiles all that stands between the package and
// testbed once more, a quarter of all that the tests compile. They go to withfleet
// below it.
func TestTestsWithFleetsAreApart(t *testing.T) {
	t.Parallel()
	without := []string{"muster/internal/testbed", "muster/internal/daemon"} // nothing stands between
	for _, p := range list(t, "muster/...") {
		if len(p.TestImports) > 0 && slices.Contains(p.XTestImports, "muster/internal/testbed") && !slices.Contains(without, p.ImportPath) {
			t.Errorf("%s has tests inside the package and tests with a fleet: move these to %s/withfleet", p.ImportPath, p.ImportPath)
		}
	}
}

// TestTheAgentIsSmall keeps the policy engine and the broker off every machine
// of a fleet.
func TestTheAgentIsSmall(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "muster/cmd/muster-server") {
		for _, d := range p.Deps {
			for _, heavy := range []string{"github.com/open-policy-agent", "github.com/nats-io/nats-server", "muster/provisioner", "muster/policies"} {
				if strings.HasPrefix(d, heavy) {
					t.Errorf("%s links %s", p.ImportPath, d)
				}
			}
		}
	}
}

// TestWireIsPlain keeps the protocol free of everything but the standard library and what its next version has.
func TestWireIsPlain(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "muster/internal/wire", "muster/provisioner/ca") {
		for _, i := range p.Imports {
			if strings.Contains(strings.Split(i, "/")[0], ".") && !strings.HasPrefix(i, "github.com/go-json-experiment/json") {
				t.Errorf("%s imports %s, want the standard library only", p.ImportPath, i)
			}
		}
	}
}
