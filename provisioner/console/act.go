package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// A nodeAction is something that an operator can have done with a node.
type nodeAction struct {
	Name    string // in addresses
	Label   string // on buttons
	Grave   bool   // it cannot be taken back
	Touches []string
	Done    string

	states  []provisioner.State // in which it makes sense
	command wire.Verb           // empty: it is no command to the node
}

var (
	onRecord = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
	inFleet  = []provisioner.State{provisioner.StateProvisioned}
)

// nodeActions are all of them, the harmless first.
var nodeActions = []*nodeAction{
	{
		Name: "reconfigure", Label: "Reconfigure", states: inFleet, command: wire.VerbReconfigure,
		Touches: []string{"The policy decides anew what configuration the node gets.", "The node fetches it, puts it in force, and confirms its digest. Its certificate stays."},
		Done:    "The node has taken the order to fetch its configuration.",
	},
	{
		Name: "restart", Label: "Restart agent", states: inFleet, command: wire.VerbRestart,
		Touches: []string{"The node's agent ends and is started again. Nothing else on the machine is touched."},
		Done:    "The node has taken the order to restart its agent.",
	},
	{
		Name: "reprovision", Label: "Reprovision", states: inFleet, command: wire.VerbReprovision,
		Touches: []string{"The node goes back to provisioning: the policy decides about it again, and it gets a new certificate and configuration.", "It comes back by its own key. Until then it is not in the fleet."},
		Done:    "The node has taken the order to be provisioned again.",
	},
	{
		Name: "shutdown", Label: "Stop agent", states: inFleet, command: wire.VerbShutdown,
		Touches: []string{"The node's agent ends, and does not start again until somebody on the machine starts it."},
		Done:    "The node has taken the order to stop its agent.",
	},
	{
		Name: "grant", Label: "Let another key have the name", states: onRecord,
		Touches: []string{"For one hour, the next machine that comes with this name and another key gets it, once.", "The key that has the name now loses it then."},
		Done:    "Another key may have the name, once, within the hour.",
	},
	{
		Name: "retire", Label: "Retire", Grave: true, states: []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked},
		Touches: []string{"Its certificates are revoked and its connections dropped.", "The name is free: the next machine that comes with it is treated as new."},
		Done:    "The node is retired: its name is free.",
	},
	{
		Name: "revoke", Label: "Revoke", Grave: true, states: onRecord,
		Touches: []string{"Its connections are dropped within a second, on every broker.", "Its certificates go on the revocation list.", "Neither its keys nor its name get another certificate until the node is retired."},
		Done:    "The node is revoked: it is kept out from now on.",
	},
}

// nodeActionNamed returns the action of that name, nil if there is none.
func nodeActionNamed(name string) *nodeAction {
	i := slices.IndexFunc(nodeActions, func(a *nodeAction) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return nodeActions[i]
}

// confirmation asks whether something is meant, and why.
type confirmation struct {
	Title   string
	To      string // where the form goes
	Back    string // where who has second thoughts goes
	Button  string
	Grave   bool // it cannot be taken back
	Danger  bool // it can
	Touches []string
	On      []string          // what it is about, by name
	Since   time.Time         // when a machine that it is about got its name; zero if it is about none
	Fields  map[string]string // what the form carries
	Each    []string          // values of the field "each"
	Problem string            // what was missing when it was sent
	Why     string            // that was given then
}

// reason returns why a form is shown again rather than done: it came too late, or says no
// reason. Every change has one.
func reason(v *visit) error {
	why := strings.TrimSpace(v.r.PostForm.Get("why"))
	v.r.PostForm.Set("why", why)
	if v.again != nil {
		return v.again
	}
	if why == "" {
		return errNoReason
	}
	if err := v.cause().Check(); err != nil {
		return &formError{err}
	}
	return nil
}

// nodeAndAction reads them from the address.
func nodeAndAction(v *visit) (wire.Identity, *nodeAction, error) {
	id, err := wire.ParseIdentity(v.r.PathValue("identity"))
	if err != nil {
		return "", nil, &formError{err}
	}
	a := nodeActionNamed(v.r.PathValue("action"))
	if a == nil {
		return "", nil, errNoPage
	}
	return id, a, nil
}

// confirmNode says what an action will touch, and asks why.
func (c *Console) confirmNode(v *visit) error {
	id, a, err := nodeAndAction(v)
	if err != nil {
		return err
	}
	report, err := c.cfg.Fleet.Report(v.r.Context(), id, c.cfg.Now().UTC())
	if err != nil {
		return err
	}
	if state := report.Record.State; !slices.Contains(a.states, state) { // changed since the button was shown
		return fmt.Errorf("%s: %w: the node is %s by now", strings.ToLower(a.Label), provisioner.ErrState, state)
	}
	owned := report.Record.Owned()
	if shown := v.r.URL.Query().Get("owned"); shown != "" && shown != ownedText(owned) { // on the page that had the button
		return fmt.Errorf("%w: %w", provisioner.ErrState, &provisioner.ChangedHandsError{Identity: id, Since: owned})
	}
	p := nodeConfirmation(id, a, owned, v.r.URL.Query().Get("key"))
	p.Fields["state"] = string(report.Record.State) // what is agreed to is for that alone
	return c.page(v, "confirm", a.Label+": "+string(id), p)
}

// ownedText writes since when a machine has its name, to the second, for links and forms:
// what is ordered on a page is for the machine that the page showed.
func ownedText(owned time.Time) string { return strconv.FormatInt(owned.Unix(), 10) }

// errNoOwner means that a form does not say since when the machine has its name.
var errNoOwner = errors.New("the form does not say which machine is meant: open the machine's page again")

// ownedOf reads since when the machine that a form is about has its name.
func ownedOf(v *visit) (time.Time, error) {
	seconds, err := strconv.ParseInt(v.r.PostForm.Get("owned"), 10, 64)
	if err != nil {
		return time.Time{}, &formError{errNoOwner}
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// nodeConfirmation says what an action will touch: the machine that has the name since
// owned. key is of a grant, the hash of the only key that it is for, and may be empty.
func nodeConfirmation(id wire.Identity, a *nodeAction, owned time.Time, key string) *confirmation {
	p := &confirmation{
		Title: a.Label, To: "/nodes/" + string(id) + "/do/" + a.Name, Back: "/nodes/" + string(id), Button: a.Label, Grave: a.Grave, Touches: a.Touches,
		On: []string{string(id)}, Since: owned, Fields: map[string]string{"owned": ownedText(owned)},
	}
	if a.command != "" || a.Name == "grant" {
		// Sent twice, it is done once.
		p.Fields["command"] = wire.NewID()
	}
	if a.Name == "grant" && key != "" {
		p.Fields["key"] = key
		p.Touches = append([]string{"Only the key with the hash " + key + " is meant."}, a.Touches...)
	}
	return p
}

// actOnNode does what was confirmed.
func (c *Console) actOnNode(v *visit) error {
	id, a, err := nodeAndAction(v)
	if err != nil {
		return err
	}
	owned, err := ownedOf(v)
	if err != nil {
		return err
	}
	if err := reason(v); err != nil {
		p := nodeConfirmation(id, a, owned, v.r.PostForm.Get("key"))
		p.Fields["state"] = v.r.PostForm.Get("state")
		p.Problem, p.Why = err.Error(), v.r.PostForm.Get("why")
		c.show(v.w, v.r, v.login, statusOf(err), "confirm", a.Label+": "+string(id), p)
		return nil
	}
	if err := c.stillOwned(v, id, a, owned); err != nil {
		return err
	}
	if err := c.do(v, id, a); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/nodes/"+string(id)+"?done="+a.Name, http.StatusSeeOther)
	return nil
}

// ownerTimeout is how long who revokes waits to know who has the name. Chosen: the machine is
// to be out within a second or two.
const ownerTimeout = time.Second

// stillOwned returns an error if another machine has the name than the form is about. Who
// revokes does not wait for a store that does not answer: nobody gets a name meanwhile, and
// [provisioner.Provisioner.RevokeNode] keeps out what it cannot read as well.
func (c *Console) stillOwned(v *visit, id wire.Identity, a *nodeAction, owned time.Time) error {
	if a.Name != "revoke" {
		return c.cfg.Provisioner.StillOwned(v.r.Context(), id, owned)
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), ownerTimeout)
	defer cancel()
	if err := c.cfg.Provisioner.StillOwned(ctx, id, owned); errors.Is(err, provisioner.ErrState) {
		return err
	}
	return nil
}

// do carries an action out.
func (c *Console) do(v *visit, id wire.Identity, a *nodeAction) (err error) {
	p, ctx, form := c.cfg.Provisioner, v.r.Context(), v.r.PostForm
	switch {
	case a.command != "":
		_, err = p.CommandNode(ctx, id, provisioner.Order{ID: form.Get("command"), Verb: a.command}, v.cause())
	case a.Name == "grant":
		_, err = p.GrantNode(ctx, id, provisioner.GrantOrder{ID: form.Get("command"), KeyHash: form.Get("key")}, v.cause())
	case a.Name == "retire":
		// Retired, whoever has stolen one that was revoked meanwhile could enroll with it.
		if err = p.StillIn(ctx, id, provisioner.State(form.Get("state")), provisioner.StateRetired); err == nil {
			err = p.RetireNode(ctx, id, v.cause())
		}
	default:
		err = p.RevokeNode(ctx, id, v.cause())
	}
	return err
}
