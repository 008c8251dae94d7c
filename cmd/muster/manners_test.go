package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
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

	// As bash does when somebody presses Tab.
	for typed, want := range map[string]string{
		"node rep": "reprovision", "node list --unse": "--unseen", "operator add --role vi": "viewer",
	} {
		words := strings.Fields(typed)
		tab := exec.CommandContext(t.Context(), "bash", "-c", `eval "$(muster --completion-script-bash)"; COMP_WORDS=(muster "$@"); COMP_CWORD=$#; _muster_bash_autocomplete; echo "${COMPREPLY[@]}"`, "bash")
		tab.Args = append(tab.Args, words...)
		if out, err := tab.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("muster %s and Tab: %q, %v; want %s", typed, out, err, want)
		}
	}
	if out, err := command(t, "--completion-script-zsh").Output(); err != nil || !strings.Contains(string(out), "#compdef muster") {
		t.Errorf("script for zsh: %v: %s", err, out)
	}
}

// TestNumbersOfFlagsAreWhole looks for kingpin's own numbers, which cut 1.5 and take 1e3.
func TestNumbersOfFlagsAreWhole(t *testing.T) {
	t.Parallel()
	app := kingpin.New(program, "")
	addVerbs(app, verbs{})
	var look func(*kingpin.CmdGroupModel)
	look = func(group *kingpin.CmdGroupModel) {
		for _, c := range group.Commands {
			for _, f := range c.Flags {
				if kind := fmt.Sprintf("%T", f.Value); strings.HasPrefix(kind, "*kingpin.") && (strings.Contains(kind, "int") || strings.Contains(kind, "float")) {
					t.Errorf("%s --%s is a number of kingpin's, %s: use cli.Int", c.FullCommand, f.Name, kind)
				}
			}
			look(c.CmdGroupModel)
		}
	}
	look(app.Model().CmdGroupModel)
}
