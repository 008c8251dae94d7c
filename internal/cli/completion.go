package cli

import (
	"os"

	"github.com/alecthomas/kingpin/v2"
)

// fishCompletion asks the program, as kingpin's scripts for bash and zsh do, and
// completes the names of files where it has no answer.
const fishCompletion = `function __{{.App.Name}}_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l options ($words[1] --completion-bash $words[2..-1])
    if test -n "$options"
        printf '%s\n' $options
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c {{.App.Name}} -f -a '(__{{.App.Name}}_complete)'
`

// addFish adds --completion-script-fish.
func addFish(app *kingpin.Application) {
	app.Flag("completion-script-fish", "Generate completion script for fish.").Hidden().PreAction(func(c *kingpin.ParseContext) error {
		app.UsageWriter(os.Stdout)
		if err := app.UsageForContextWithTemplate(c, 0, fishCompletion); err != nil {
			return err
		}
		os.Exit(ExitDone) //nolint:forbidigo // as kingpin does for the other shells
		return nil
	}).Bool()
}
