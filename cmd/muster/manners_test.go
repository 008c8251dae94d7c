package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// TestShellsCompleteCommands has a real bash read the completion script and complete what is typed.
func TestShellsCompleteCommands(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := command(t, "completion", shell).Output()
		if err != nil || len(script) == 0 {
			t.Fatalf("completion %s: %v: %s", shell, err, script)
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s on this machine: its script is not read", shell)
			continue
		}
		check := exec.CommandContext(t.Context(), program, "-n")
		check.Stdin = strings.NewReader(string(script))
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s refuses the script: %v: %s", shell, err, out)
		}
	}
	for typed, want := range map[string]string{
		"node rep": "reprovision", "node list --unse": "--unseen", "operator add --role vi": "viewer",
		"node list --state ret": "retired", "node list --sort ch": "changed", "completion f": "fish",
	} {
		words := strings.Fields(typed)
		tab := exec.CommandContext(t.Context(), "bash", "-c", `eval "$(muster completion bash)"
			COMP_WORDS=(muster "$@"); COMP_CWORD=$#; _muster; echo "${COMPREPLY[@]}"`, "bash")
		tab.Args = append(tab.Args, words...)
		if out, err := tab.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("muster %s and Tab: %q, %v; want %s", typed, out, err, want)
		}
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
