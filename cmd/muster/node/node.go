// Package node implements "muster node": questions about nodes, and orders to nodes.
package node

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
)

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("node", "Show, approve and command nodes.").
		HelpLong("These verbs ask the provisioner on this machine, or the one of --url. Changes are in\n" +
			"force on every provisioner within a second.")
	addList(c, all)
	addQuestion(c, all, "show", "Show the record of a node.", showHelp, "", show)
	addQuestion(c, all, "history", "Show the history of a node.", historyHelp, "/history", showHistory)
	addQuestion(c, all, "explain", "Explain the state of a node, and what to do.", explainHelp, "/explain",
		showExplanation)
	addChanges(c, all)
	addGrant(c, all)
	addPending(c, all)
	addVerdicts(c, all)
	addCommands(c, all)
}

// questionHelp is formatted with the verb.
const questionHelp = `

  muster node %[1]s web1.example.net
  muster node %[1]s web1.example.net -o json

Exits with 0 if there is an answer, 1 if the name is unknown or no provisioner
answers, 2 if the command line is wrong.`

func addQuestion[T any](
	parent *kingpin.CmdClause, all cli.Verbs, name, help, long, path string, show func(*verb.Operator, T) fmt.Stringer,
) {
	var identity wire.Identity
	c := parent.Command(name, help).HelpLong(long + fmt.Sprintf(questionHelp, name))
	cli.Arg(c.Arg("node", "Name of the node.").HintAction(verb.NodeNames).Required(), &identity, wire.ParseName)
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (T, error) {
		return verb.Get[T](ctx, o, pathOf(identity, path))
	}, show)
}

func pathOf(id wire.Identity, what string) string { return "/v1/nodes/" + string(id) + what }
