package console

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

// readingTimeout is how long a list waits for a provisioner that has just started
// to have read all records: 100,000 take about two seconds.
const readingTimeout = 5 * time.Second

const (
	feedLength   = 15 // events of the overview
	worstSources = 8
)

// overviewPage is the whole installation at a glance.
type overviewPage struct {
	Nodes      *fleet.Summary // nil while the records are being read
	States     []row
	Expiries   []row
	Waiting    int
	Chart      *rateChart
	Codes      []row
	Refused    int // of all codes
	Frozen     bool
	Pauses     []*orders.Pause // the installation's first
	Done       string          // what was just done
	Alarms     []alarm
	Sources    []row // of refusals
	Components []*fleet.HeardComponent
	Webhooks   []events.Webhook
	Missing    []string // of what could not be asked
	Feed       []*told
}

// alarm is one that stands, with what to do.
type alarm struct {
	events.Alarm
	On     string // the provisioner where it stands
	Remedy string
}

// mostFirst returns a row for each of counts, the highest first.
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

// states are those that are shown, in their order.
var states = []provisioner.State{provisioner.StateProvisioned, provisioner.StateEnrolled, provisioner.StateRevoked, provisioner.StateRetired}

// stateWords says what the states mean.
var stateWords = map[provisioner.State]string{
	provisioner.StateProvisioned: "They have certificate and configuration on disk, and are part of the fleet.",
	provisioner.StateEnrolled:    "They got a certificate, and have not confirmed that they have it.",
	provisioner.StateRevoked:     "They are kept out, with their keys and names.",
	provisioner.StateRetired:     "They are gone, and their names are free.",
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
		Feed:     c.activity.newest(feedLength, func(*told) bool { return true }),
	}
	var err error
	page.Nodes, err = c.cfg.Fleet.Summary(c.cfg.Now())
	switch {
	case err == nil:
		page.countNodes()
	case !errors.Is(err, fleet.ErrReading):
		return err
	}
	if page.Waiting, err = c.cfg.Orders.Keys.Count(ctx); err != nil {
		page.Missing = append(page.Missing, "waiting machines: "+err.Error())
	}
	if page.Components, err = c.cfg.Components(ctx); err != nil {
		page.Missing = append(page.Missing, "components: "+err.Error())
	}
	page.readComponents()
	return c.page(v, "overview", "Overview", page)
}

// countNodes counts the nodes by state, and the certificates of the fleet by their end.
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
		{Label: "have ended", Link: link + "&within=0s", Count: p.Nodes.Expired, Tone: "bad"},
		{Label: "within a day", Link: link + "&within=24h", Count: p.Nodes.Day, Tone: "bad"},
		{Label: "1 to 7 days", Link: link + "&within=168h", Count: p.Nodes.Week - p.Nodes.Day, Tone: "warn"},
		{Label: "later", Link: link, Count: p.Nodes.Live - p.Nodes.Week},
	})
}

// readComponents takes alarms and refusals from the provisioners that are there.
func (p *overviewPage) readComponents() {
	activity := fleet.Activity{Refused: make(map[wire.Code]int)}
	for _, one := range p.Components {
		if one.Gone {
			continue
		}
		activity.Add(one.Activity)
		for _, a := range one.Alarms {
			if a.Code != wire.CodePaused { // the pauses say more
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
