package console

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/internal/cli"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

// installationPages show, and change nothing.
type installationPages struct{ *Console }

// index links to the pages of what is kept for all nodes.
func (c installationPages) index(v *visit) error {
	return c.page(v, "installation", "Installation", nil)
}

func (c installationPages) configuration(v *visit) error {
	text, err := c.cfg.Settings()
	if err != nil {
		return err
	}
	return c.page(v, "configuration", "Configuration", cli.Printable(text))
}

func (c installationPages) webhooks(v *visit) error {
	t := &table{
		Columns: []string{"Webhook", "State", "Failing since", "Cause", "Endpoint", "Delivered", "Waiting",
			"Failed tries", "Given up", "Last delivery", "Events"},
		Empty: "No webhook is configured: `webhooks` in provisioner.yaml names them.",
	}
	for _, w := range c.cfg.Webhooks.List() {
		state := chip("delivers", "good")
		switch {
		case !w.FailingSince.IsZero():
			state = chip("fails", "bad")
		case w.LastDelivery.IsZero():
			state = chip("no event yet", "")
		}
		t.add(w.Name, state, w.FailingSince, as("long", w.Cause), as("code", w.Endpoint), w.Delivered, w.Waiting,
			w.Failed, w.GivenUp, w.LastDelivery, as("types", list(w.Events)))
	}
	return c.tables(v, "Webhooks", "Counts are those of this provisioner since its start; events that wait are those "+
		"of all. `muster webhook test NAME` sends a test event.", t)
}

// components shows provisioners and brokers.
func (c installationPages) components(v *visit) error {
	all, unread := c.cfg.Components(v.r.Context()) // this one, if the store does not answer
	provisioners := &table{
		Title: "Provisioners",
		Columns: []string{"Provisioner", "State", "Site", "Version", "Running since", "Last report", "Free disk",
			"Address", "Alarms"},
	}
	if unread != nil {
		provisioners.Note = sentence(unread.Error())
	}
	features := &table{Title: "Features", Columns: []string{"Feature", "Provisioner", "State", "Cause"}}
	for _, one := range all {
		state := chip("running", "good")
		switch {
		case one.Stopped:
			state = chip("stopped", "")
		case one.Gone:
			state = chip("no report", "bad")
		}
		provisioners.add(one.Name, state, one.Site, one.Version, one.Since, one.Heard, one.Free,
			as("code", one.URL), len(one.Alarms))
		for _, f := range one.Features {
			if !one.Gone && f.State != fleet.FeatureDisabled {
				features.add(f.Name, one.Name, chip(string(f.State), tone(f.State)), as("long", f.Reason))
			}
		}
	}
	slices.SortStableFunc(features.Rows, func(a, b []cell) int { return strings.Compare(a[0].Text, b[0].Text) })
	brokers := &table{
		Title:   "Brokers",
		Note:    "Nodes that have muster's agent, by the broker to which they are connected.",
		Columns: []string{"Broker", "Connected nodes"},
		Empty:   "No node is connected.",
	}
	nodes, err := c.cfg.Fleet.Summary(c.cfg.Now(), nil)
	if err != nil {
		brokers.Empty = sentence(err.Error())
	} else {
		for _, name := range slices.Sorted(maps.Keys(nodes.Brokers)) {
			brokers.add(name, nodes.Brokers[name])
		}
	}
	return c.tables(v, "Provisioners and brokers", "", provisioners, brokers, features)
}

// backupsSince is how far back the page of backups looks.
const backupsSince = 30 * 24 * time.Hour

func (c installationPages) backups(v *visit) error {
	bounded, cancel := context.WithTimeout(v.r.Context(), searchTime)
	defer cancel()
	t := &table{
		Columns: []string{"Begun", "By", "Why", "Provisioner"},
		Empty:   "None in the last 30 days. `muster backup FILE` makes one.",
	}
	q := events.Query{Since: c.cfg.Now().Add(-backupsSince), Type: string(events.BackupBegun), Once: true}
	err := c.cfg.Events.Events(bounded, q, func(e *events.Stored) error {
		d := e.Read()
		t.add(e.Time, byName(d.By), as("long", d.Why), e.Source)
		return nil
	})
	if err != nil {
		return err
	}
	slices.Reverse(t.Rows)
	return c.tables(v, "Backups", "Backups that were begun in the last 30 days. Only the command that wrote a file "+
		"knows whether it is complete; `muster backup FILE --verify` reads it again. `muster restore --help` says how "+
		"to restore one.", t)
}
