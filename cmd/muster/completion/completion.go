// Package completion implements "muster completion": scripts with which shells complete command lines.
package completion

import (
	"context"
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

// scripts has the script of each shell. The hidden flag --completion-bash prints the words that may come next.
var scripts = map[string]string{
	"bash": `_muster() {
	COMPREPLY=($(compgen -W \
		"$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null)" \
		-- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
	local matches=(${(f)"$(${words[1]} --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
	compadd -a matches
	if [[ $compstate[nmatches] -eq 0 && $words[$CURRENT] != -* ]]; then
		_files
	fi
}
if [[ $funcstack[1] == _muster ]]; then
	_muster "$@"
else
	compdef _muster muster
fi
`,
	"fish": `function __muster
	set -l words (commandline -opc) (commandline -ct)
	$words[1] --completion-bash $words[2..-1] 2>/dev/null
end
complete -c muster -a '(__muster)'
`,
}

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	var shell string
	c := app.Command("completion", "Print a script that completes commands in a shell.").HelpLong(help)
	c.Arg("shell", "bash, zsh or fish.").Required().
		HintOptions("bash", "zsh", "fish").StringVar(&shell)
	all.Check(c, func() error {
		if scripts[shell] == "" {
			return fmt.Errorf("<shell> is %q, want bash, zsh or fish", shell)
		}
		return nil
	})
	all[c.FullCommand()] = func(context.Context) error {
		_, err := os.Stdout.WriteString(scripts[shell])
		return err
	}
}
