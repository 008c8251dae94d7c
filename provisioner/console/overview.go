package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// readingTimeout is how long a list waits for the index after a start; 100,000 records take two seconds.
const readingTimeout = 5 * time.Second

const (
	feedLength   = 15 // events
	worstSources = 8
	firstLate    = 8 // nodes
)

type overviewPage struct {
	Nodes      *fleet.Summary // nil while the index is read
	Tiles      []row          // what is so now
	States     []row
	Expiries   []row
	Late       []row            // reasons
	LateNodes  []fleet.LateNode // the first to expire; Fault is any reason
	CRLs       []*trust.CRL
	Authority  *operate.AuthorityInfo
	Rates      *rateChart
	Codes      []row           // of refusals
	Sources    []row           // of refusals
	Pauses     []*orders.Pause // the installation's first
	Done       string          // the order just given
	Troubles   []*trouble
	Wrong      bool // something else is wrong
	Frozen     bool
	Missing    []string // what could not be read
	Components []*fleet.HeardComponent
	Webhooks   []events.Webhook
	Feed       []*events.Logged
}

// A trouble is a state that an operator must end.
type trouble struct {
	Kind   string    // of the chip: alarm, or a shorter word
	Code   wire.Code // of an alarm
	Title  string
	On     []string // provisioners
	Causes []string
	Since  time.Time // zero: not known
	Remedy string
	Page   advice // where to look
}

// troublePages are the pages where operators look after an alarm, besides its events.
var troublePages = map[wire.Code]advice{
	events.AlarmSiteQuiet:         {Label: "Nodes that are not connected", Link: "/nodes?connected=no"},
	events.AlarmNodesFaulty:       {Label: "These nodes", Link: "/nodes?faulty=true&sort=expires"},
	events.AlarmPendingFull:       {Label: "Pending nodes", Link: "/approvals"},
	events.AlarmCertificatesStuck: {Label: "These certificates", Link: "/certificates?stuck=true"},
	events.AlarmCertificatesEnd:   {Label: "These certificates", Link: "/certificates?expires_before=1d"},
	events.AlarmPolicyRefused:     {Label: "Policy", Link: "/policies"},
	events.AlarmAllowsAll:         {Label: "Allow-list", Link: "/allow"},
	events.AlarmRecovery:          {Label: "Tokens", Link: "/tokens"},
	wire.CodePolicyFailed:         {Label: "Policy", Link: "/policies"},
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

// overview has nothing of provisioners for an operator with a limit to sites.
func (c overviewPages) overview(v *visit) (err error) {
	ctx, sites := v.r.Context(), v.login.Sites
	about := c.cfg.Fleet.About(sites)
	p := &overviewPage{
		Pauses: slices.DeleteFunc(c.cfg.Orders.Pauses.List(),
			func(p *orders.Pause) bool { return p.Site != "" && !sites.Has(p.Site) }),
		Done: done(v, pauseActions),
		Feed: c.cfg.Recent.Newest(feedLength, func(l *events.Logged) bool { return about == nil || about(l.Stored) }),
	}
	p.Nodes, err = c.cfg.Fleet.Summary(c.cfg.Now(), sites)
	switch {
	case err == nil:
		p.countNodes()
	case sites == nil && errors.Is(err, fleet.ErrIncomplete):
		p.Missing = append(p.Missing, "nodes: "+err.Error())
	case !errors.Is(err, fleet.ErrReading):
		return err
	}
	if sites != nil {
		keys, err := c.keysOf(ctx, v, "")
		if err != nil {
			return err
		}
		p.Tiles = append(p.Tiles, tile("pending", "/approvals", len(keys), "warn"))
		return c.page(v, "site", "Overview", p)
	}
	p.CRLs, p.Webhooks = c.cfg.Provisioner.AllCRLs(), c.cfg.Webhooks.List()
	p.Frozen, p.Authority = c.cfg.Orders.Recovery.Frozen(), c.cfg.Orders.Process.Authority()
	if err := p.countRefusals(ctx, c.cfg.Recent, v.r.FormValue("period")); err != nil {
		return err
	}
	if p.Components, err = c.cfg.Components(ctx); err != nil {
		p.Missing = append(p.Missing, "provisioners: "+err.Error())
	}
	p.readComponents()
	if p.Nodes != nil {
		p.findLate(c.cfg.Fleet.Late(c.cfg.Now()), c.cfg.Recent)
	}
	_, hour, _ := c.cfg.Recent.Counts(ctx, events.Periods[0])
	p.Tiles = append(p.Tiles, tile("pending", "/approvals", c.cfg.Orders.Keys.Count(), "warn"),
		tile("refused in the last hour", "/?period=hour#codes", hour.Refused, ""))
	p.Wrong = p.Wrong || p.Frozen || len(p.Troubles)+len(p.Pauses)+len(p.Missing) > 0 ||
		p.Nodes != nil && p.Nodes.Cloned > 0
	return c.page(v, "overview", "Overview", p)
}

// findLate finds out why nodes have not renewed.
func (p *overviewPage) findLate(late []fleet.LateNode, recent *events.Recent) {
	refused := make(map[string]wire.Code)
	if len(late) > 0 {
		recent.Newest(math.MaxInt, func(l *events.Logged) bool {
			// Another key is another machine's.
			own := l.Type == events.Refused && l.Data.Code != wire.CodeIdentityTaken || l.Data.Serial != ""
			if own && refused[l.Data.Node] == "" {
				refused[l.Data.Node] = l.Data.Code
			}
			return false
		})
	}
	link := "/nodes?sort=expires&state=provisioned"
	if len(late) > 0 {
		link += "&expires_before=" + late[len(late)-1].Expires.Add(time.Second).Format(time.RFC3339)
	}
	links := map[string]string{
		"fault":         link + "&faulty=true",
		"not connected": link + "&connected=no",
		"refused":       "/events?since=7d&type=" + string(events.Refused),
	}
	counts := make(map[string]int)
	for _, n := range late {
		reason, code := "not connected", refused[string(n.Identity)]
		switch {
		case n.Fault != "":
			reason = "fault"
		case code != "":
			reason, n.Fault = "refused", "refused: "+string(code)
		case n.Connected != fleet.No:
			reason = "does not ask"
		}
		counts[reason]++
		if n.Fault = cmp.Or(n.Fault, reason); len(p.LateNodes) < firstLate {
			p.LateNodes = append(p.LateNodes, n)
		}
	}
	p.Late = mostFirst(counts)
	for i := range p.Late {
		p.Late[i].Link = cmp.Or(links[p.Late[i].Label], link)
	}
}

// tile has a tone only if there are some.
func tile(label, link string, count int, tone string) row {
	if count == 0 {
		tone = ""
	}
	return row{Label: label, Link: link, Count: count, Tone: tone}
}

func (p *overviewPage) countNodes() {
	for _, s := range states {
		r := tile(string(s), "/nodes?state="+string(s), p.Nodes.States[s], tone(s))
		r.Title = stateWords[s]
		p.States = append(p.States, r)
	}
	for _, is := range []fleet.ConnectionState{fleet.Yes, fleet.No, fleet.Unknown} {
		r := tile(linkedWords[is], "/nodes?connected="+string(is), p.Nodes.Connected[is], tone(is))
		if is == fleet.No {
			r.Link += "&sort=connected" // the newest first
		}
		if r.Count > 0 || is != fleet.Unknown {
			p.Tiles = append(p.Tiles, r)
		}
	}
	const link = "/nodes?sort=expires&state=" + string(provisioner.StateProvisioned)
	p.Expiries = bars([]row{
		{Label: "expired", Link: link + "&expires_before=0s", Count: p.Nodes.Expired, Tone: "bad"},
		{Label: "within a day", Link: link + "&expires_before=1d", Count: p.Nodes.Day, Tone: "bad"},
		{Label: "1 to 7 days", Link: link + "&expires_before=7d", Count: p.Nodes.Week - p.Nodes.Day, Tone: "warn"},
		{Label: "later", Link: link, Count: p.Nodes.Live - p.Nodes.Week},
	})
}

// readComponents finds the troubles of provisioners.
func (p *overviewPage) readComponents() {
	for _, one := range p.Components {
		if one.Gone {
			p.Wrong = p.Wrong || !one.Stopped
			continue
		}
		causes := ""
		for _, a := range one.Alarms {
			causes += a.Cause
			if a.Code != wire.CodePaused { // shown with the pauses
				p.alarm(one.Name, a)
			}
		}
		for _, f := range one.Failed() {
			if !strings.Contains(causes, f.Reason) {
				p.Troubles = append(p.Troubles, &trouble{
					Kind:   "failed",
					Title:  "Feature " + f.Name + " has failed",
					On:     []string{one.Name},
					Causes: []string{f.Reason},
				})
			}
		}
	}
}

// alarm adds an alarm once for all provisioners that have the same.
func (p *overviewPage) alarm(on string, a events.Alarm) {
	causes := strings.Split(a.Cause, "\n")
	for _, t := range p.Troubles {
		if t.Code == a.Code && slices.Equal(t.Causes, causes) {
			t.On = append(t.On, on)
			return
		}
	}
	page, ok := troublePages[a.Code]
	if !ok {
		page = advice{Label: "Its events", Link: "/events?since=7d&code=" + url.QueryEscape(string(a.Code))}
	}
	p.Troubles = append(p.Troubles, &trouble{
		Kind:   "alarm",
		Code:   a.Code,
		Title:  strings.TrimSuffix(sentence(strings.ReplaceAll(string(a.Code), "_", " ")), "."),
		On:     []string{on},
		Causes: causes,
		Since:  a.Since,
		Remedy: events.AlarmRemedy(a.Code),
		Page:   page,
	})
}

// countRefusals counts what was admitted and refused in the period of this name; "": the first.
func (p *overviewPage) countRefusals(ctx context.Context, recent *events.Recent, name string) error {
	name = cmp.Or(name, events.Periods[0].Name)
	i := slices.IndexFunc(events.Periods, func(p events.Period) bool { return p.Name == name })
	if i < 0 {
		return badRequest(fmt.Errorf("unknown period %.20q, want hour, day or week", name))
	}
	chosen := events.Periods[i]
	p.Rates = &rateChart{Period: chosen}
	var sum events.Counts
	p.Rates.Steps, sum, p.Rates.Broken = recent.Counts(ctx, chosen)
	p.Rates.Admitted, p.Rates.Refused = sum.Admitted, sum.Refused
	for _, s := range p.Rates.Steps {
		p.Rates.Most = max(p.Rates.Most, s.Admitted+s.Refused)
	}
	p.Codes, p.Sources = mostFirst(sum.Codes), mostFirst(sum.Sources)
	p.Sources = p.Sources[:min(len(p.Sources), worstSources)]
	for i := range p.Codes {
		r := &p.Codes[i]
		r.Link = "/events?since=" + chosen.Since + "&code=" + url.QueryEscape(r.Label)
		if r.Title = wire.MeaningOf(wire.Code(r.Label)).Remedy; r.Label == "" {
			r.Label, r.Title = "sign-in", ""
			r.Link = "/events?since=" + chosen.Since + "&type=" + string(events.LoginRefused)
		}
	}
	for i := range p.Sources {
		p.Sources[i].Label = cmp.Or(p.Sources[i].Label, "more addresses")
	}
	return nil
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

// Stands reports whether a provisioner has one of these alarms.
func (p *overviewPage) Stands(codes ...wire.Code) bool {
	return slices.ContainsFunc(p.Troubles, func(t *trouble) bool { return slices.Contains(codes, t.Code) })
}
