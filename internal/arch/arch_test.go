// Package arch tests the layout that docs/architecture.md draws.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers are the packages of the provisioner from the bottom up, as docs/architecture.md draws them. A package imports
// packages of lower layers, and none of its own: so edges never import each other. A package that is in no layer, and not
// the agent's, is a decision: it wants a line in docs/adr.
var layers = [][]string{
	{"internal/span", "internal/inputfile", "internal/nearest", "internal/disk", "internal/sdnotify",
		"internal/paging", "internal/peer"},
	{"internal/wire", "internal/cli", "internal/limit", "internal/keyfile", "internal/queuegroup"},
	{"internal/conffile", "internal/seal", "internal/discover"},
	{"internal/serverconf"},
	{"jwt", "policies", "provisioner/ca", "provisioner/helper"},
	{"provisioner/events"},
	{"provisioner/trust", "provisioner/facts", "internal/reserved"},
	{"provisioner/orders", "provisioner/waiting"},
	{"provisioner"},
	{"provisioner/services"},
	{"provisioner/fleet", "provisioner/login"},
	{"provisioner/operate"},
	{"provisioner/natsapi", "provisioner/choria", "provisioner/puppet", "provisioner/httpapi",
		"provisioner/console", "provisioner/broker", "provisioner/store",
		"provisioner/backup", "provisioner/metrics", "provisioner/webhook"},
	{"internal/daemon"},
	{"internal/setup"},
	{"internal/migrate"},
}

// agent is what the agent on a node is made of, and what each of its packages imports besides internal/wire. It links
// nothing of the provisioner.
var agent = map[string][]string{
	"server": {"internal/discover", "internal/conffile", "internal/disk", "internal/inputfile", "internal/keyfile",
		"internal/seal", "internal/serverconf", "internal/span", "jwt", "server/advice", "server/files", "server/link",
		"server/certificates", "server/orders", "server/socket", "server/trust"},
	"server/advice": {},
	"server/certificates": {"internal/conffile", "internal/disk", "internal/inputfile", "internal/keyfile", "internal/span",
		"server/advice", "server/files", "server/link", "server/trust"},
	"server/files":  {"internal/disk", "internal/inputfile"},
	"server/link":   {"internal/discover", "internal/seal", "server/advice"},
	"server/orders": {"internal/inputfile", "server/files"},
	"server/socket": {"internal/peer"},
	"server/trust":  {"internal/inputfile", "internal/keyfile", "server/advice"},
	"server/servercmd": {"internal/cli", "internal/inputfile", "internal/sdnotify", "server", "server/advice", "server/certificates",
		"server/socket", "server/trust"},
}

// tools serve people and tests: they may import everything, and only tools and commands may import them.
var tools = []string{"internal/testbed", "internal/simnode", "internal/demo", "internal/bench", "internal/chaos",
	"internal/attacks", "internal/browsertest", "internal/testdisk", "internal/testdoc", "internal/testproc", "internal/arch", "examples/",
	"deploy/"}

// isTool reports whether a package is a tool, or a package of tests alone.
func isTool(name string) bool {
	return strings.HasSuffix(name, "/withfleet") || strings.HasPrefix(name, "cmd/") ||
		slices.ContainsFunc(tools, func(tool string) bool { return strings.HasPrefix(name, tool) })
}

// layerOf returns the layer of a package, -1 if it is in none.
func layerOf(name string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
}

// allowed reports whether a package of this module may import another one.
func allowed(name, imported string) bool {
	switch {
	case isTool(name):
		return true
	case strings.HasPrefix(name, "server"):
		return imported == "internal/wire" || slices.Contains(agent[name], imported)
	default:
		return layerOf(imported) >= 0 && layerOf(imported) < layerOf(name)
	}
}

// owners says which packages may import a dependency, tests apart. One owner
// each, so that it can be replaced in one place.
var owners = map[string][]string{
	"github.com/golang-jwt/jwt":       {"jwt"},
	"github.com/coreos/go-oidc":       {"provisioner/login"},
	"golang.org/x/oauth2":             {"provisioner/login"},
	"github.com/zitadel/oidc":         {},
	"github.com/youmark/pkcs8":        {"internal/keyfile"},
	"github.com/open-policy-agent":    {"policies"},
	"github.com/nats-io/nats-server":  {"provisioner/broker"},
	"github.com/nats-io/jwt":          {"provisioner/broker"},
	"github.com/nats-io/nats.go/jets": {"provisioner/store"},
	"github.com/klauspost/compress":   {"provisioner/backup", "provisioner/store"},
	"github.com/prometheus/client":    {"provisioner/metrics"},
	"github.com/prometheus/procfs":    {"internal/bench"},
	"github.com/miekg/dns":            {},
	"go.yaml.in/yaml":                 {"internal/conffile", "provisioner/httpapi"},
	"github.com/schollz/progressbar":  {"internal/cli"},
	"github.com/agnivade/levenshtein": {"internal/nearest"},
	"golang.org/x/term":               {"internal/cli"},
	"github.com/santhosh-tekuri":      {},
	"github.com/KimMachineGun":        {"cmd/muster/provisioner"},
	"github.com/coreos/go-systemd":    {"internal/sdnotify"},
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
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports"}, patterns...)...)
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

// TestLayout holds every package to its layer, and each dependency to its owner. With -v it prints the graph.
func TestLayout(t *testing.T) {
	t.Parallel()
	found := make(map[string][]string)
	for _, p := range list(t, "muster/...") {
		name := strings.TrimPrefix(p.ImportPath, "muster/")
		if layerOf(name) < 0 && agent[name] == nil && !isTool(name) {
			t.Errorf("%s is in no layer", name)
		}
		found[name] = nil
		for _, i := range p.Imports {
			ours, ok := strings.CutPrefix(i, "muster/")
			if ok {
				found[name] = append(found[name], ours)
			}
			if ok && !allowed(name, ours) {
				t.Errorf("%s imports %s, which is against the layout", name, ours)
			}
			if ours, ok := strings.CutPrefix(i, "muster/cmd/"); ok && !downward(name, "cmd/"+ours) {
				t.Errorf("%s imports cmd/%s, which is not below it and not shared", name, ours)
			}
			for dependency, owner := range owners {
				if strings.HasPrefix(i, dependency) && !slices.Contains(owner, name) {
					t.Errorf("%s imports %s, which belongs to %v", name, i, owner)
				}
			}
		}
	}
	for n := range layers {
		for _, name := range slices.Sorted(slices.Values(layers[len(layers)-1-n])) {
			if _, ok := found[name]; !ok {
				t.Errorf("%s is a room of the layout, and there is no such package", name)
			}
			t.Logf("%2d %-22s -> %s", len(layers)-1-n, name, strings.Join(found[name], " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(agent)) {
		t.Logf("   %-22s -> %s", name, strings.Join(found[name], " "))
	}
}

// downward reports whether a package of a command may import another one: the command its nouns, and a noun what
// all of them share.
func downward(name, imported string) bool {
	const nouns, shared = "cmd/muster/", "cmd/muster/internal/"
	return name == "cmd/muster" && strings.HasPrefix(imported, nouns) || strings.HasPrefix(name, nouns) &&
		strings.HasPrefix(imported, shared)
}

// TestTestsWithFleetsAreInTheirOwnPackages wants no tests inside a package beside tests of it that
// have a fleet: for those, Go compiles all that stands between the package and
// testbed once more, a quarter of all that the tests compile. They go to withfleet
// below it.
func TestTestsWithFleetsAreInTheirOwnPackages(t *testing.T) {
	t.Parallel()
	without := []string{"muster/internal/testbed", "muster/internal/daemon"} // nothing stands between
	for _, p := range list(t, "muster/...") {
		if len(p.TestImports) > 0 && slices.Contains(p.XTestImports, "muster/internal/testbed") &&
			!slices.Contains(without, p.ImportPath) {
			t.Errorf("%s has tests inside the package and tests with a fleet: move these to %s/withfleet", p.ImportPath,
				p.ImportPath)
		}
	}
}

// TestTheAgentIsSmall keeps the policy engine and the broker off every machine
// of a fleet.
func TestTheAgentIsSmall(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "muster/cmd/muster-server") {
		for _, d := range p.Deps {
			for _, heavy := range []string{"github.com/open-policy-agent", "github.com/nats-io/nats-server",
				"muster/provisioner", "muster/policies"} {
				if strings.HasPrefix(d, heavy) {
					t.Errorf("%s links %s", p.ImportPath, d)
				}
			}
		}
	}
}

// TestWireIsPlain keeps the protocol free of everything but the standard library.
func TestWireIsPlain(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "muster/internal/wire", "muster/provisioner/ca") {
		for _, i := range p.Imports {
			if strings.Contains(strings.Split(i, "/")[0], ".") {
				t.Errorf("%s imports %s, want the standard library only", p.ImportPath, i)
			}
		}
	}
}
