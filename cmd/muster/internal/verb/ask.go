package verb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"muster/internal/cli"
)

// ErrNo means that the operator did not agree.
var ErrNo = errors.New("not done: the answer was no")

// Agree asks on the terminal whether to do what a command does to what, where y and yes are consent. It shows the table
// first, which may be empty, on standard error: standard output is for the result.
func Agree(ctx context.Context, command, what string, table fmt.Stringer) error {
	if _, err := fmt.Fprint(os.Stderr, table); err != nil {
		return err
	}
	_, name, _ := strings.Cut(command, " ")
	question := fmt.Sprintf("%s %s?", name, what)
	if !cli.IsTerminal(os.Stdin) {
		return &cli.UsageError{
			Mistakes: fmt.Errorf("%s No terminal to ask on: give --yes", question),
			Help:     Program + " " + command,
		}
	}
	answer, err := Ask(ctx, question+" [y/N]")
	if err == nil && answer != "y" && answer != "yes" {
		err = ErrNo
	}
	return err
}

// Ask returns the answer to a question on the terminal in lower case, without blanks around it.
func Ask(ctx context.Context, question string) (string, error) {
	if _, err := fmt.Fprintf(os.Stderr, "%s ", cli.Printable(question)); err != nil {
		return "", err
	}
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.ToLower(strings.TrimSpace(line)), ctx.Err()
}
