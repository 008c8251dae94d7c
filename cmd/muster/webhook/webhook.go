// Package webhook implements "muster webhook": deliveries of webhooks, and a test.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/events"
)

const listHelp = `Lists the webhooks of provisioner.yaml: events delivered and waiting, and the current
failure, since when and why.

  muster webhook list
  muster webhook list -o json`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("webhook", "Show and test webhooks.").
		HelpLong("These verbs ask the provisioner on this machine, or the one of --url.")
	list := c.Command("list", "List webhooks with their deliveries.").HelpLong(listHelp)
	verb.ListOf(list, all, "/v1/webhooks", "provisioner.yaml names no webhooks", columns)
	addTest(c, all)
}

var columns = []cli.Column[events.Webhook]{
	{Title: "WEBHOOK", Value: func(h events.Webhook) any { return h.Name }},
	{Title: "ENDPOINT", Value: func(h events.Webhook) any { return h.Endpoint }},
	{Title: "DELIVERED", Value: func(h events.Webhook) any { return h.Delivered }},
	{Title: "FAILED", Value: func(h events.Webhook) any { return h.Failed }},
	{Title: "GIVEN UP", Value: func(h events.Webhook) any { return h.GivenUp }},
	{Title: "WAITING", Value: func(h events.Webhook) any { return h.Waiting }},
	{Title: "LAST DELIVERY", Value: func(h events.Webhook) any { return h.LastDelivery }},
	{Title: "FAILING", Value: func(h events.Webhook) any { return h.FailingSince }},
	{Title: "CAUSE", Value: func(h events.Webhook) any { return h.Cause }},
}

const testHelp = `Makes the provisioner send one signed event of type io.muster.webhook.test, once, and
prints the endpoint's status and the beginning of its answer.

  muster webhook test pager
  muster webhook test pager -o json

Exits with 0 if the endpoint accepted it, 1 if not, 2 if the command line is wrong.`

func addTest(parent *kingpin.CmdClause, all cli.Verbs) {
	var name string
	o := &verb.Operator{}
	c := parent.Command("test", "Send a webhook a signed test event, and show the answer.").HelpLong(testHelp)
	c.Arg("name", "Name of the webhook in provisioner.yaml.").Required().StringVar(&name)
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all[c.FullCommand()] = func(ctx context.Context) error {
		a, err := verb.Post[*events.WebhookAnswer](ctx, o, "/v1/webhooks/"+url.PathEscape(name)+"/test", nil)
		if err != nil {
			return err
		}
		if err := verb.Show(&o.Output, a, showAnswer); err != nil {
			return err
		}
		if a.Cause != "" {
			return fmt.Errorf("webhook %s: %w", name, errors.New(a.Cause))
		}
		return nil
	}
}

func showAnswer(a *events.WebhookAnswer) fmt.Stringer {
	if a.Status == 0 {
		return nil
	}
	l := &cli.Labels{}
	l.Addf("Answer", "%d %s, after %v", a.Status, http.StatusText(a.Status), a.Elapsed.Round(time.Millisecond))
	l.Add("webhook-id", a.ID)
	l.AddIf("Body", strings.TrimSpace(a.Body))
	return l
}
