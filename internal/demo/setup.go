package demo

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The policy of a fleet that stays, beside the default one, and what its operators
// think of adding to it.
var (
	//go:embed stay.rego
	stayPolicy []byte
	//go:embed next.rego
	nextPolicy []byte
)

// writeSetup makes of what `muster provisioner init` wrote the installation's own:
// operators over HTTPS, names that are allowed, policies.
func (s *stay) writeSetup(home string) error {
	config := filepath.Join(home, "provisioner.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	changed := strings.NewReplacer(
		"\napi:\n", "\napi:\n  listen: \"127.0.0.1:0\"\n  names: [localhost]\n  addresses: [127.0.0.1]\n",
		"\n# shadow_policy: next\n", "\nshadow_policy: next\n",
		"\nquotas:\n", "\nquotas:\n  per_source: 0 # one machine plays all of them\n",
	).Replace(string(text)) + s.pager.config()
	if err := os.WriteFile(config, []byte(changed), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(home, "allow-list.yaml"), []byte(allowList(time.Now())), 0o644); err != nil {
		return err
	}
	if err := useOwnURLs(filepath.Join(home, "server.conf")); err != nil {
		return err
	}
	policy, next := filepath.Join(home, "policy"), filepath.Join(home, "next")
	if err := os.WriteFile(filepath.Join(policy, "stay.rego"), stayPolicy, 0o644); err != nil {
		return err
	}
	if err := os.CopyFS(next, os.DirFS(policy)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(next, "next.rego"), nextPolicy, 0o644)
}

// useOwnURLs has nodes go on with the broker that their token names: its port is
// known only when it listens.
func useOwnURLs(template string) error {
	text, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	const from, to = "\nbrokers = localhost:4222\n", "\nbrokers = {{ join .URLs \",\" }}\n"
	if !bytes.Contains(text, []byte(from)) {
		return fmt.Errorf("%s: no line %q", template, strings.TrimSpace(from))
	}
	return os.WriteFile(template, bytes.Replace(text, []byte(from), []byte(to), 1), 0o644)
}

// allowList is the file of names that are allowed.
func allowList(now time.Time) string {
	text := "# Names that may enroll without having been seen before. Written by muster demo.\nallow:\n"
	entry := func(name, comment string) {
		text += fmt.Sprintf("  - pattern: %q\n    comment: %s\n", name+"*.*."+domain, comment)
	}
	for _, r := range roles {
		entry(r.name, r.name+" tier")
	}
	entry("branch", "branch offices")
	entry("half", "one that breaks down")
	entry("lab", "the laboratory")
	entry("new", "machines in burn-in")
	entry("old", "last year's image")
	return text + fmt.Sprintf("    expires: %s\n", now.Add(stays).UTC().Format(time.RFC3339))
}
