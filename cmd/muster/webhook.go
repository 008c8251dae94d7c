package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
)

// addWebhook adds "muster webhook" with its verbs.
func addWebhook(app *kingpin.Application, all verbs) {
	c := app.Command("webhook", "See what has become of webhooks, and try them.").HelpLong("These verbs ask the provisioner that runs on this machine, or with --url one elsewhere.")
	list := &webhookListVerb{}
	l := c.Command("list", "List webhooks with what they were delivered.").HelpLong(webhookListHelp)
	list.add(l, all)
	all[l.FullCommand()] = list.run
	test := &webhookTestVerb{}
	t := c.Command("test", "Send a webhook a signed test event, and say what comes back.").HelpLong(webhookTestHelp)
	t.Arg("name", "Its name in provisioner.yaml.").Required().StringVar(&test.name)
	test.add(t, all)
	all[t.FullCommand()] = test.run
}

const webhookListHelp = `Lists the webhooks of provisioner.yaml: how many events each has taken, how many waits
for it, and since when and why it takes none.

  muster webhook list
  muster webhook list --json`

// webhookListVerb is "muster webhook list".
type webhookListVerb struct{ operator }

func (v *webhookListVerb) run(ctx context.Context) error {
	var hooks []provisioner.Webhook
	if err := v.ask(ctx, http.MethodGet, "/v1/webhooks", nil, &hooks); err != nil {
		return err
	}
	return v.print(hooks, func() error {
		if len(hooks) == 0 {
			v.say("there are no webhooks in provisioner.yaml")
			return nil
		}
		var t cli.Table
		t.Add("NAME", "ENDPOINT", "DELIVERED", "FAILED", "GIVEN UP", "WAITING", "LAST DELIVERY", "TROUBLE")
		for i := range hooks {
			h := &hooks[i]
			trouble := "-"
			if !h.FailingSince.IsZero() {
				trouble = h.Cause + ", since " + instant(h.FailingSince)
			}
			t.Add(h.Name, h.Endpoint, strconv.FormatUint(h.Delivered, 10), strconv.FormatUint(h.Failed, 10), strconv.FormatUint(h.GivenUp, 10),
				strconv.FormatUint(h.Waiting, 10), instant(h.LastDelivery), trouble)
		}
		_, err := t.WriteTo(os.Stdout)
		return err
	})
}

const webhookTestHelp = `Has the provisioner send one event of type io.muster.webhook.test, signed as any
other, and prints the endpoint's status and the beginning of its answer. It is sent
once, whatever comes back.

  muster webhook test pager
  muster webhook test pager --json

Exits with 0 if the endpoint took it, 1 if it did not, 2 if the command line makes no
sense.`

// webhookTestVerb is "muster webhook test".
type webhookTestVerb struct {
	operator
	name string
}

func (v *webhookTestVerb) run(ctx context.Context) error {
	var a provisioner.WebhookAnswer
	if err := v.ask(ctx, http.MethodPost, "/v1/webhooks/"+url.PathEscape(v.name)+"/test", nil, &a); err != nil {
		return err
	}
	err := v.print(&a, func() error {
		if a.Status == 0 {
			return nil
		}
		var l cli.Labels
		l.Addf("Answer", "%d %s, after %v", a.Status, http.StatusText(a.Status), a.Elapsed.Round(time.Millisecond))
		l.Add("webhook-id", a.ID)
		if body := strings.TrimSpace(a.Body); body != "" {
			l.Add("Body", body)
		}
		_, err := l.WriteTo(os.Stdout)
		return err
	})
	if err == nil && a.Cause != "" {
		err = fmt.Errorf("webhook %s: %w", v.name, errors.New(a.Cause))
	}
	return err
}
