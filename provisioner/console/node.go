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
)

// nodePage is all about one node.
type nodePage struct {
	Identity wire.Identity
	Report   *fleet.Report // nil if it has no record
	Explain  *fleet.Explanation
	Moments  []fleet.Moment // the newest first
	Complete bool
	Waiting  []*waiting.Key
	Actions  []*action // that make sense in its state
	Done     string    // what was just done
	Says     []string  // how it stands
	Do       []advice  // what can be done about it
	Chip     string    // a word for a name that has no record
	ChipTone string
	may      bool // who looks may act
	paused   bool // enrollment is, somewhere
}

func (c nodePages) node(v *visit) error {
	id, err := wire.ParseIdentity(v.r.PathValue("identity"))
	if err != nil {
		return badRequest(err)
	}
	p := &nodePage{Identity: id, may: v.login.Role.Covers(trust.RoleOperator), paused: len(c.cfg.Orders.Pauses.List()) > 0}
	ctx, x := v.r.Context(), c.cfg.Nodes
	p.Report, err = x.Report(ctx, id, c.cfg.Now().UTC())
	if err != nil && !errors.Is(err, provisioner.ErrNoRecord) {
		return err
	}
	if p.Waiting, err = c.cfg.Orders.Keys.Waiting(ctx, id); err != nil {
		return err
	}
	past, err := x.Past(ctx, id)
	switch {
	case err == nil:
		p.Moments, p.Complete = past.Moments, past.Complete
		slices.Reverse(p.Moments)
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

// Owner tells the machine on the page from another one that gets its name; empty if there is no record.
func (p *nodePage) Owner() string {
	if p.Report == nil {
		return ""
	}
	return strconv.FormatInt(p.Report.Record.OwnedSince.Unix(), 10)
}

// Link is where an action is asked for, with the machine that it is for: the page's.
func (p *nodePage) Link(a *action) string {
	link := "/nodes/" + string(p.Identity) + "/do/" + a.Name
	if p.Report != nil {
		link += "?seen=" + seenText(seenOf(p.Report))
	}
	return link
}

// momentTones says how moments are to be taken. What is not here is calm.
var momentTones = map[fleet.Kind]string{
	fleet.Applied: "good", fleet.Issued: "good", fleet.Renewed: "good", fleet.Connected: "good",
	fleet.Approved: "good", fleet.Confirmed: "good",
	fleet.Refused: "warn", fleet.Granted: "warn", fleet.Stopped: "warn", fleet.Commanded: "warn", fleet.KeptOut: "warn",
	fleet.Attempted: "bad", fleet.Revoked: "bad", fleet.Cloned: "bad", fleet.Rejected: "bad",
}

// Tone says how a moment is to be taken.
func (*nodePage) Tone(m fleet.Moment) string { return momentTones[m.Kind] }

// momentWords says what the kinds mean.
var momentWords = map[fleet.Kind]string{
	fleet.Presented: "A machine showed a token", fleet.Decided: "The policy let it in", fleet.Issued: "Certificate issued", fleet.Renewed: "Certificate renewed",
	fleet.Offered: "Another configuration offered", fleet.Applied: "The node has certificate and configuration on its disk", fleet.Refused: "Refused",
	fleet.Attempted: "Somebody tried this name, and proved nothing", fleet.Repeated: "It got its answer again", fleet.Granted: "Another key may have the name, once",
	fleet.Revoked: "Revoked", fleet.Retired: "Retired: the name is free", fleet.Cloned: "Two live machines use its key", fleet.Connected: "The agent has connected",
	fleet.Alive: "The agent is alive", fleet.Stopped: "The agent has ended", fleet.Confirmed: "The node has said so again",
	fleet.Approved: "A key of it was approved", fleet.Rejected: "A key of it was rejected", fleet.Forgotten: "What was said of a key no longer counts",
	fleet.KeptOut: "Its certificate did not let it into the fleet",
}

// orderWords says what nodes are commanded to do.
var orderWords = map[wire.Verb]string{
	wire.VerbReprovision: "Ordered to be provisioned again", wire.VerbReconfigure: "Ordered to ask for its configuration anew",
	wire.VerbRestart: "Ordered to start its agent anew", wire.VerbShutdown: "Ordered to stop its agent",
}

// Words says what a moment is.
func (*nodePage) Words(m fleet.Moment) string {
	if w := orderWords[m.Verb]; w != "" && m.Kind == fleet.Commanded {
		return w
	}
	if w := momentWords[m.Kind]; w != "" {
		return w
	}
	return string(m.Kind)
}
