package console

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

// readingTimeout is how long a page waits for a provisioner that has just started
// to have read all records; chosen, 100,000 take about two seconds.
const readingTimeout = 5 * time.Second

const (
	feedLength   = 15 // events of the overview
	worstSources = 8
)

// overviewPage is the whole installation at a glance.
type overviewPage struct {
	Reading    bool // the records are still being read
	Total      int
	States     []row
	Waiting    int
	Hour       *hour
	Chart      *rateChart
	Codes      []row
	Refused    int // of all codes
	Cloned     int // names that two machines use
	Frozen     bool
	Pauses     []*provisioner.Pause // the installation's first
	Done       string               // what was just done
	Expiries   []row
	Alarms     []alarm
	Sources    []source
	Components []*provisioner.HeardComponent
	Webhooks   []events.Webhook
	Missing    []string // of what could not be asked
	Feed       []*told
}

// alarm is one that stands, with what to do.
type alarm struct {
	events.Alarm
	On     string // the provisioner where it stands; empty: this one
	Remedy string
}

// A source is an address with the attempts that failed from there.
type source struct {
	events.FailedAttempts
	Answers []codeCount // the most first
}

// sources returns the addresses with the most failed attempts.
func (c overviewPages) sources() []source {
	var all []source
	for _, f := range c.cfg.Attempts.Sources(worstSources) {
		s := source{FailedAttempts: f}
		for code, n := range f.Codes {
			s.Answers = append(s.Answers, codeCount{code, int(n)})
		}
		slices.SortFunc(s.Answers, mostFirst)
		all = append(all, s)
	}
	return all
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

// toneOf is the tone of a state, calm if no node is in it.
func toneOf(s provisioner.State, n int) string {
	if n == 0 {
		return ""
	}
	return tone(s)
}

func (c overviewPages) overview(v *visit) error {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	p := &overviewPage{Hour: c.activity.hour(), Sources: c.sources()}
	p.Pauses, p.Done = c.cfg.Provisioner.Pauses(), pauseDone[v.r.URL.Query().Get("done")]
	p.Frozen = c.cfg.Provisioner.Frozen()
	err := c.countNodes(ctx, p)
	if errors.Is(err, fleet.ErrReading) {
		p.Reading, err = true, nil
	}
	if err != nil {
		return err
	}
	if p.Waiting, err = c.cfg.Provisioner.CountWaiting(ctx); err != nil {
		p.Missing = append(p.Missing, "who waits: "+err.Error())
	}
	if c.cfg.Alarms != nil {
		for _, a := range c.cfg.Alarms() {
			p.Alarms = append(p.Alarms, alarm{a, "", events.AlarmRemedy(a.Code)})
		}
	}
	c.askOthers(ctx, p)
	p.Alarms = slices.DeleteFunc(p.Alarms, func(a alarm) bool { return a.Code == wire.CodePaused }) // the pauses say more
	p.countRefusals()
	p.Chart = newRateChart(p.Hour, p.Refused)
	p.Feed = c.activity.newest(feedLength, func(*told) bool { return true })
	return c.page(v, "overview", "Overview", p)
}

// countRefusals counts by code. The log of events tells once what a machine is told
// again and again, such as that its name is another's, and outlives provisioners;
// they count each time, and forget it when they end: whichever is more is so.
func (p *overviewPage) countRefusals() {
	count := make(map[wire.Code]int)
	activity := provisioner.Activity{Refused: count}
	for _, one := range p.Components {
		if !one.Gone {
			activity.Add(one.Activity)
		}
	}
	for _, n := range p.Hour.Codes {
		count[n.Code] = max(count[n.Code], n.Count)
	}
	var codes []codeCount
	for code, n := range count {
		codes = append(codes, codeCount{code, n})
		p.Refused += n
	}
	slices.SortFunc(codes, mostFirst)
	for _, n := range codes {
		p.Codes = append(p.Codes, row{Label: string(n.Code), Link: "/events?code=" + url.QueryEscape(string(n.Code)), Count: n.Count, Tone: "warn", Title: wire.MeaningOf(n.Code).Remedy})
	}
	bars(p.Codes)
}

// countNodes counts the nodes by state, and their certificates by their end.
func (c overviewPages) countNodes(ctx context.Context, p *overviewPage) error {
	all, err := c.cfg.Fleet.List(ctx, fleet.Query{Limit: 1})
	if err != nil {
		return err
	}
	p.Total = all.Total
	for _, s := range states {
		p.States = append(p.States, row{Label: string(s), Link: "/nodes?state=" + string(s), Count: all.States[s], Tone: toneOf(s, all.States[s]), Title: stateWords[s]})
	}
	bars(p.States)
	summary, err := c.cfg.Fleet.Summary(c.cfg.Now())
	if err != nil {
		return err
	}
	p.Cloned = summary.Cloned
	p.Expiries, err = c.expiries(ctx)
	return err
}

// horizons are the steps of the chart of expiries.
var horizons = []struct {
	label, within string
	d             time.Duration
	tone          string
}{
	{"have ended", "0s", 0, "bad"},
	{"within a day", "24h", 24 * time.Hour, "bad"},
	{"1 to 3 days", "72h", 3 * 24 * time.Hour, "warn"},
	{"3 to 7 days", "168h", 7 * 24 * time.Hour, "warn"},
	{"7 to 14 days", "336h", 14 * 24 * time.Hour, ""},
	{"14 to 30 days", "720h", 30 * 24 * time.Hour, ""},
	{"later", "", 10 * 365 * 24 * time.Hour, ""},
}

// expiries counts nodes of the fleet by when their certificates end, as
// [fleet.Index.Summary] does: one that was offered and never confirmed is nobody's.
func (c overviewPages) expiries(ctx context.Context) ([]row, error) {
	now, before := c.cfg.Now(), 0
	var rows []row
	for _, h := range horizons {
		page, err := c.cfg.Fleet.List(ctx, fleet.Query{Limit: 1, Filter: fleet.Filter{
			States: []provisioner.State{provisioner.StateProvisioned}, ExpiresBefore: now.Add(h.d),
		}})
		if err != nil {
			return nil, err
		}
		link := "/nodes?sort=expires&state=" + string(provisioner.StateProvisioned)
		if h.within != "" {
			link += "&within=" + h.within
		}
		rows = append(rows, row{Label: h.label, Link: link, Count: page.Total - before, Tone: h.tone})
		before = page.Total
	}
	return bars(rows), nil
}

// askOthers asks for what other parts of the program know.
func (c overviewPages) askOthers(ctx context.Context, p *overviewPage) {
	var err error
	if c.cfg.Components != nil {
		if p.Components, err = c.cfg.Components(ctx); err != nil {
			p.Missing = append(p.Missing, "components: "+err.Error())
		}
	}
	for _, one := range p.Components {
		for _, a := range one.Alarms {
			if !one.Gone && one.Name != c.cfg.Name && !slices.ContainsFunc(p.Alarms, func(here alarm) bool { return here.Code == a.Code && here.Cause == a.Cause }) {
				p.Alarms = append(p.Alarms, alarm{a, one.Name, events.AlarmRemedy(a.Code)})
			}
		}
	}
	if c.cfg.Webhooks != nil {
		p.Webhooks = c.cfg.Webhooks()
	}
}
