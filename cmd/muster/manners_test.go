package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestShellsCompleteVerbs has a real bash take the completion script and complete
// what a person has begun to type.
func TestShellsCompleteVerbs(t *testing.T) {
	t.Parallel()
	script, err := command(t, "--completion-script-bash").Output()
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(string(script))
	if out, err := check.CombinedOutput(); err != nil || len(script) == 0 {
		t.Errorf("bash does not take the script: %v: %s", err, out)
	}
	for typed, want := range map[string]string{"operator": "add", "node": "history", "token": "revoke"} {
		out, err := command(t, "--completion-bash", typed, "").Output()
		if err != nil || !slices.Contains(strings.Fields(string(out)), want) {
			t.Errorf("muster %s, completed: %q, %v; want %s among it", typed, out, err, want)
		}
	}
}

// TestTheManualPageIsAPage looks for the verbs in what --help-man prints.
func TestTheManualPageIsAPage(t *testing.T) {
	t.Parallel()
	page, err := command(t, "--help-man").Output()
	if err != nil || !strings.HasPrefix(string(page), ".TH muster 1") {
		t.Fatalf("%v: %.80q", err, page)
	}
	for _, verb := range []string{"operator add", "node explain", "token issue", "allow list"} {
		if !strings.Contains(string(page), verb) {
			t.Errorf("the manual page lacks %q", verb)
		}
	}
}
