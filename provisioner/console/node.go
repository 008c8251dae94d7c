package console

import (
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
	id, err := wire.ParseName(v.r.PathValue("identity"))
	if err != nil {
		return badRequest(err)
	}
	p := &nodePage{
		Identity: id,
		may:      v.login.Role.Covers(trust.RoleOperator),
		paused:   len(c.cfg.Orders.Pauses.List()) > 0,
	}
	ctx, x := v.r.Context(), c.cfg.Nodes
	p.Report, err = x.Report(ctx, id, c.cfg.Now().UTC())
	if err != nil && !errors.Is(err, provisioner.ErrNoRecord) {
		return err
	}
	if p.Waiting, err = c.cfg.Orders.Keys.Waiting(ctx, id); err != nil {
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

// itemTones are colors; the rest is neutral.
var itemTones = map[fleet.Kind]string{
	fleet.Applied: "good", fleet.Issued: "good", fleet.Renewed: "good", fleet.Connected: "good",
	fleet.Approved: "good", fleet.Confirmed: "good", fleet.RunWorks: "good",
	fleet.Refused: "warn", fleet.Granted: "warn", fleet.Stopped: "warn", fleet.Commanded: "warn",
	fleet.KeptOut: "warn", fleet.Faulty: "warn", fleet.RunBroken: "warn",
	fleet.Served: "good", fleet.Named: "good", fleet.Unserved: "warn", fleet.Ended: "bad", fleet.Unnamed: "bad",
	fleet.Attempted: "bad", fleet.Revoked: "bad", fleet.Cloned: "bad", fleet.Rejected: "bad",
}

// Tone is the color of a history item.
func (*nodePage) Tone(m fleet.HistoryItem) string { return itemTones[m.Kind] }

var itemTitles = map[fleet.Kind]string{
	fleet.Presented: "A token was shown",
	fleet.Decided:   "Admitted by the policy",
	fleet.Issued:    "Certificate issued",
	fleet.Renewed:   "Certificate renewed",
	fleet.Offered:   "New configuration offered",
	fleet.Applied:   "Certificate and configuration confirmed",
	fleet.Refused:   "Refused",
	fleet.Attempted: "Unauthenticated request refused",
	fleet.Repeated:  "Same answer sent again",
	fleet.Granted:   "Name granted to another key, once",
	fleet.Revoked:   "Revoked",
	fleet.Retired:   "Retired",
	fleet.Cloned:    "Two live machines use the key",
	fleet.Faulty:    "Report of what keeps it from renewing",
	fleet.RunBroken: "Puppet run failed",
	fleet.RunWorks:  "Puppet run succeeded again",
	fleet.Served:    "Service certificate issued",
	fleet.Unserved:  "Service certificate refused",
	fleet.Ended:     "Service certificate revoked",
	fleet.Named:     "Service certificate approved",
	fleet.Unnamed:   "Service certificate rejected",
	fleet.Connected: "Agent connected",
	fleet.Alive:     "Agent alive",
	fleet.Stopped:   "Agent stopped",
	fleet.Confirmed: "Confirmed again",
	fleet.Approved:  "Key approved",
	fleet.Rejected:  "Key rejected",
	fleet.Forgotten: "Verdict on a key lifted",
	fleet.KeptOut:   "Refused in the fleet",
}

var orderWords = map[wire.Verb]string{
	wire.VerbReprovision: "Commanded to enroll again",
	wire.VerbReconfigure: "Commanded to fetch its configuration",
	wire.VerbRestart:     "Commanded to restart its agent",
	wire.VerbShutdown:    "Commanded to stop its agent",
}

// Words is the title of a history item.
func (*nodePage) Words(m fleet.HistoryItem) string {
	if w := orderWords[m.Verb]; w != "" && m.Kind == fleet.Commanded {
		return w
	}
	if w := itemTitles[m.Kind]; w != "" {
		return w
	}
	return string(m.Kind)
}
