// Package completion implements "muster completion": scripts with which shells complete command lines.
package completion

import (
	"context"
	"embed"
	"fmt"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

const help = `Prints a script with which the shell completes commands, flags, and their values:
nodes and tokens too, if the provisioner answers within a second.

  muster completion bash > /etc/bash_completion.d/muster
  muster completion zsh > /usr/local/share/zsh/site-functions/_muster
  muster completion fish > ~/.config/fish/completions/muster.fish`

// scripts has a script for each shell. The hidden flag --completion-bash prints the words that may come next.
//
//go:embed muster.*
var scripts embed.FS

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	var shell string
	c := app.Command("completion", "Print a script that completes commands in a shell.").HelpLong(help)
	c.Arg("shell", "bash, zsh or fish.").Required().
		HintOptions("bash", "zsh", "fish").StringVar(&shell)
	var script []byte
	all.Check(c, func() (err error) {
		if script, err = scripts.ReadFile("muster." + shell); err != nil {
			return fmt.Errorf("<shell> is %q, want bash, zsh or fish", shell)
		}
		return nil
	})
	all[c.FullCommand()] = func(context.Context) error {
		_, err := os.Stdout.Write(script)
		return err
	}
}
