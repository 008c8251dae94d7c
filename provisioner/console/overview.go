package console

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// readingTimeout is how long a list waits for the index after a start; 100,000 records take two seconds.
const readingTimeout = 5 * time.Second

const (
	feedLength   = 15 // events
	worstSources = 8
)

type overviewPage struct {
	Nodes      *fleet.Summary // nil while the index is read
	States     []row
	Expiries   []row
	Waiting    int
	Chart      *rateChart
	Codes      []row
	Refused    int // of all codes
	Frozen     bool
	Pauses     []*orders.Pause // the installation's first
	Done       string          // the order just given
	Alarms     []alarm
	Sources    []row // of refusals
	Components []*fleet.HeardComponent
	Webhooks   []events.Webhook
	Missing    []string // what could not be read
	Feed       []*loggedEvent
}

type alarm struct {
	events.Alarm
	On     string // provisioner
	Remedy string
}

func mostFirst[K ~string](counts map[K]int) []row {
	all := make([]row, 0, len(counts))
	for label, n := range counts {
		all = append(all, row{Label: string(label), Count: n, Tone: "warn"})
	}
	slices.SortFunc(all, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Label, b.Label))
	})
	return bars(all)
}

// states are in the order shown.
var states = []provisioner.State{
	provisioner.StateProvisioned,
	provisioner.StateEnrolled,
	provisioner.StateRevoked,
	provisioner.StateRetired,
}

var stateWords = map[provisioner.State]string{
	provisioner.StateProvisioned: "Certificate and configuration are confirmed; the nodes are in the fleet.",
	provisioner.StateEnrolled:    "A certificate is issued, but not confirmed.",
	provisioner.StateRevoked:     "The nodes are barred, with their keys and names.",
	provisioner.StateRetired:     "The nodes are gone, and their names are free.",
}

func (c overviewPages) overview(v *visit) error {
	ctx := v.r.Context()
	page := &overviewPage{
		Frozen:   c.cfg.Orders.Recovery.Frozen(),
		Pauses:   c.cfg.Orders.Pauses.List(),
		Done:     done(v, pauseActions),
		Webhooks: c.cfg.Webhooks.List(),
		Chart:    newRateChart(c.activity.hour()),
		Sources:  c.activity.sources(worstSources),
		Feed:     c.activity.newest(feedLength, func(*loggedEvent) bool { return true }),
	}
	var err error
	page.Nodes, err = c.cfg.Fleet.Summary(c.cfg.Now())
	switch {
	case err == nil:
		page.countNodes()
	case errors.Is(err, fleet.ErrIncomplete):
		page.Missing = append(page.Missing, "nodes: "+err.Error())
	case !errors.Is(err, fleet.ErrReading):
		return err
	}
	page.Waiting = c.cfg.Orders.Keys.Count()
	if page.Components, err = c.cfg.Components(ctx); err != nil {
		page.Missing = append(page.Missing, "components: "+err.Error())
	}
	page.readComponents()
	return c.page(v, "overview", "Overview", page)
}

func (p *overviewPage) countNodes() {
	for _, s := range states {
		r := row{Label: string(s), Link: "/nodes?state=" + string(s), Count: p.Nodes.States[s], Title: stateWords[s]}
		if r.Count > 0 {
			r.Tone = tone(s)
		}
		p.States = append(p.States, r)
	}
	const link = "/nodes?sort=expires&state=" + string(provisioner.StateProvisioned)
	p.Expiries = bars([]row{
		{Label: "expired", Link: link + "&expires_before=0s", Count: p.Nodes.Expired, Tone: "bad"},
		{Label: "within a day", Link: link + "&expires_before=1d", Count: p.Nodes.Day, Tone: "bad"},
		{Label: "1 to 7 days", Link: link + "&expires_before=7d", Count: p.Nodes.Week - p.Nodes.Day, Tone: "warn"},
		{Label: "later", Link: link, Count: p.Nodes.Live - p.Nodes.Week},
	})
}

// readComponents sums up alarms and refusals of running provisioners.
func (p *overviewPage) readComponents() {
	activity := fleet.Activity{Refused: make(map[wire.Code]int)}
	for _, one := range p.Components {
		if one.Gone {
			continue
		}
		activity.Add(one.Activity)
		for _, a := range one.Alarms {
			if a.Code != wire.CodePaused { // shown with the pauses
				p.Alarms = append(p.Alarms, alarm{a, one.Name, events.AlarmRemedy(a.Code)})
			}
		}
	}
	p.Codes = mostFirst(activity.Refused)
	for i := range p.Codes {
		r := &p.Codes[i]
		p.Refused += r.Count
		r.Link, r.Title = "/events?code="+url.QueryEscape(r.Label), wire.MeaningOf(wire.Code(r.Label)).Remedy
	}
}

var pauseActions = []*action{
	{
		Name:   "pause",
		Label:  "Pause enrollment",
		Danger: true,
		Touches: []string{
			"No node enrolls any more, on any provisioner, within a second, until an operator resumes it.",
			"Nodes of the fleet stay connected, and renew their certificates.",
			"Nodes that ask are told to retry, and do.",
		},
		Done: "Enrollment is paused: no node enrolls, on any provisioner, until an operator resumes it.",
	},
	{
		Name:  "resume",
		Label: "Resume enrollment",
		Touches: []string{
			"Nodes can enroll again, on every provisioner, within a second.",
			"Refused nodes retry by themselves, within seconds to minutes.",
		},
		Done: "Enrollment goes on: refused nodes retry by themselves.",
	},
}

// order pauses the installation, or ends a pause. `muster pause --site` pauses one site.
func (c overviewPages) order(v *visit, o *order) error {
	o.Back, o.On = "/", []string{"the whole installation"}
	site := v.r.FormValue("site")
	if site != "" && o.Name == "resume" {
		o.On[0], o.Fields = "site "+site, url.Values{"site": {site}}
	}
	o.do = func(ctx context.Context, cause trust.Cause) (err error) {
		if o.Name == "resume" {
			return c.cfg.Orders.Pauses.End(ctx, jwt.Site(site), cause)
		}
		_, err = c.cfg.Orders.Pauses.Begin(ctx, "", false, cause)
		return err
	}
	return nil
}

// Everywhere reports whether the whole installation is paused.
func (p *overviewPage) Everywhere() bool { return len(p.Pauses) > 0 && p.Pauses[0].Site == "" }
