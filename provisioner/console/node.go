package console

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"muster/provisioner/waiting"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

type nodePage struct {
	Identity wire.Identity
	Report   *fleet.Report // nil without a record
	Explain  *fleet.Explanation
	History  []fleet.HistoryItem // newest first
	Complete bool
	Waiting  []*waiting.Key
	Services []services.Listed // by name
	Actions  []*action         // for its state
	Done     string            // the order just given
	Says     []string          // status
	Do       []advice          // advice
	Chip     string            // for a name without a record
	ChipTone string
	may      bool // the operator may order
	paused   bool // enrollment is paused somewhere
}

func (c nodePages) node(v *visit) error {
	id := v.node
	p := &nodePage{
		Identity: id,
		may:      v.login.Role.Covers(trust.RoleOperator),
		paused:   len(c.cfg.Orders.Pauses.List()) > 0,
	}
	ctx, x := v.r.Context(), c.cfg.Nodes
	var err error
	p.Report, err = x.Report(ctx, id, c.cfg.Now().UTC())
	if err != nil && !errors.Is(err, provisioner.ErrNoRecord) {
		return err
	}
	if p.Waiting, err = c.keysOf(ctx, v, id); err != nil {
		return err
	}
	own := services.Query{Node: wire.Pattern(id)}
	if page, err := c.cfg.Certificates.Index().Page(own); err == nil { // else its status says so
		p.Services = page.Certificates
	}
	past, err := x.History(ctx, id)
	switch {
	case err == nil:
		p.History, p.Complete = past.Items, past.Complete
		slices.Reverse(p.History)
		if p.Explain, err = x.Explain(ctx, id, c.cfg.Now().UTC(), c.cfg.Provisioner.Forecast); err != nil {
			return err
		}
	case !errors.Is(err, provisioner.ErrNoRecord) || p.Report == nil && len(p.Waiting) == 0:
		return err
	}
	state := provisioner.StateNone
	if p.Report != nil {
		state = p.Report.Record.State
	}
	for _, a := range nodeActions {
		if slices.Contains(a.states, state) {
			p.Actions = append(p.Actions, a)
		}
	}
	if p.Explain != nil {
		p.read()
	}
	p.Chip, p.ChipTone = p.chip(c.cfg.Orders.Keys.Rejected())
	p.Done = done(v, nodeActions)
	return c.page(v, "node", string(id), p)
}

// Owner changes when another key gets the name; empty without a record.
func (p *nodePage) Owner() string {
	if p.Report == nil {
		return ""
	}
	return strconv.FormatInt(p.Report.Record.OwnedSince.Unix(), 10)
}

// Link leads to an action on the node as the page shows it.
func (p *nodePage) Link(a *action) string {
	link := "/nodes/" + string(p.Identity) + "/do/" + a.Name
	if p.Report != nil {
		link += "?seen=" + seenText(seenOf(p.Report))
	}
	return link
}

// itemShown has the title of each kind of history item, and its color; "" is neutral.
var itemShown = map[fleet.Kind]struct{ title, tone string }{
	fleet.Presented: {"A token was shown", ""},
	fleet.Decided:   {"Admitted by the policy", ""},
	fleet.Issued:    {"Certificate issued", "good"},
	fleet.Renewed:   {"Certificate renewed", "good"},
	fleet.Offered:   {"New configuration offered", ""},
	fleet.Applied:   {"Certificate and configuration confirmed", "good"},
	fleet.Refused:   {"Refused", "warn"},
	fleet.Attempted: {"Unauthenticated request refused", "bad"},
	fleet.Repeated:  {"Same answer sent again", ""},
	fleet.Granted:   {"Name granted to another key, once", "warn"},
	fleet.Revoked:   {"Revoked", "bad"},
	fleet.Retired:   {"Retired", ""},
	fleet.Cloned:    {"Two live machines use the key", "bad"},
	fleet.Faulty:    {"Report of what keeps it from renewing", "warn"},
	fleet.RunBroken: {"Puppet run failed", "warn"},
	fleet.RunWorks:  {"Puppet run succeeded again", "good"},
	fleet.Served:    {"Service certificate issued", "good"},
	fleet.Unserved:  {"Service certificate refused", "warn"},
	fleet.Ended:     {"Service certificate revoked", "bad"},
	fleet.Named:     {"Service certificate approved", "good"},
	fleet.Unnamed:   {"Service certificate rejected", "bad"},
	fleet.Connected: {"Agent connected", "good"},
	fleet.Alive:     {"Agent alive", ""},
	fleet.Stopped:   {"Agent stopped", "warn"},
	fleet.Confirmed: {"Confirmed again", "good"},
	fleet.Approved:  {"Key approved", "good"},
	fleet.Rejected:  {"Key rejected", "bad"},
	fleet.Forgotten: {"Verdict on a key lifted", ""},
	fleet.KeptOut:   {"Refused in the fleet", "warn"},
	fleet.Commanded: {"Commanded", "warn"},
}

// Tone is the color of a history item.
func (*nodePage) Tone(m fleet.HistoryItem) string { return itemShown[m.Kind].tone }

// Words is the title of a history item.
func (*nodePage) Words(m fleet.HistoryItem) string {
	title := cmp.Or(itemShown[m.Kind].title, string(m.Kind))
	if m.Kind == fleet.Commanded {
		title += " " + fleet.VerbSentences[m.Verb]
	}
	return title
}
