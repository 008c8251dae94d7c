package policies_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"muster/policies"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// load returns an engine for one module whose package line is given.
func load(t testing.TB, rules string) *policies.Engine {
	t.Helper()
	e, err := policies.Load(policies.Config{Paths: at(t, module(rules))})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// at returns the paths of files that it writes.
func at(t testing.TB, files fstest.MapFS) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return []string{dir}
}

// builtin are the paths of the policy that comes with muster.
func builtin() []string { return []string{"builtin/default.rego", "builtin/default_test.rego"} }

// module returns a directory that holds one policy file.
func module(rules string) fstest.MapFS {
	return fstest.MapFS{"p.rego": {Data: []byte("package muster.enroll\n\n" + rules + "\n")}}
}

// stranger is a request of a new node.
func stranger() *policies.Input {
	return &policies.Input{
		Identity: "web1.example.net",
		Proof:    policies.ProofToken,
		Token:    policies.Token{ID: "t1", Signer: "ops", Org: "choria"},
		CSR: policies.CSR{CommonName: "web1.example.net", DNSNames: []string{"web1.example.net"},
			Extensions: map[string]string{"pp_role": "web"}},
		Facts: []byte(`{"role": "web", "number": 1, "list": []}`),
		Node:  policies.Node{State: "none", Reason: "new"},
		Time:  noon,
	}
}

// write writes a file in a directory that it makes if there is none.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
