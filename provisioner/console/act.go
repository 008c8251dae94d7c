package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
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

// reason reports that a form lacks its reason, or has one that cannot be kept. Every change has one.
func reason(v *visit) error {
	why := strings.TrimSpace(v.r.PostForm.Get("why"))
	v.r.PostForm.Set("why", why)
	if why == "" {
		return errNoReason
	}
	if err := v.cause().Check(); err != nil {
		return &formError{err}
	}
	return nil
}

// askAgain shows a form again that lacks something.
func (c *Console) askAgain(v *visit, err error, p *confirmation) error {
	p.Problem, p.Why = err.Error(), v.r.PostForm.Get("why")
	c.show(v.w, v.r, v.login, statusOf(err), "confirm", p.Title, p)
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
func (c nodePages) confirmNode(v *visit) error {
	id, a, err := nodeAndAction(v)
	if err != nil {
		return err
	}
	report, err := c.cfg.Nodes.Report(v.r.Context(), id, c.cfg.Now().UTC())
	if err != nil {
		return err
	}
	if state := report.Record.State; !slices.Contains(a.states, state) { // changed since the button was shown
		return fmt.Errorf("%s: %w: the node is %s by now", strings.ToLower(a.Label), provisioner.ErrState, state)
	}
	if shown := v.r.URL.Query().Get("seen"); shown != "" { // on the page that had the button
		seen, err := parseSeen(shown)
		if err == nil {
			seen.Revision = 0 // this page shows the newest
			err = seen.Check(report.Record, report.Revision)
		}
		if err != nil {
			return err
		}
	}
	return c.page(v, "confirm", a.Label+": "+string(id), nodeConfirmation(id, a, seenOf(report), v.r.URL.Query().Get("key")))
}

// seenOf is what a page about a node shows: what is ordered on it is for that alone.
func seenOf(r *fleet.Report) provisioner.Seen {
	return provisioner.Seen{Revision: r.Revision, OwnedSince: r.Record.Owned()}
}

// seenText writes what was seen for links and forms, REVISION-SECONDS.
func seenText(s provisioner.Seen) string {
	return fmt.Sprintf("%d-%d", s.Revision, s.OwnedSince.Unix())
}

// errNotSeen means that a form does not say what its page showed.
var errNotSeen = errors.New("the form does not say which machine is meant: open the machine's page again")

// parseSeen is the inverse of seenText.
func parseSeen(text string) (provisioner.Seen, error) {
	revision, owned, _ := strings.Cut(text, "-")
	at, err := strconv.ParseUint(revision, 10, 64)
	seconds, bad := strconv.ParseInt(owned, 10, 64)
	if err != nil || bad != nil || at == 0 {
		return provisioner.Seen{}, &formError{errNotSeen}
	}
	return provisioner.Seen{Revision: provisioner.Revision(at), OwnedSince: time.Unix(seconds, 0).UTC()}, nil
}

// nodeConfirmation says what an action will touch: the machine that was seen. key is of a grant, the hash of the only key that it is for, and may be empty.
func nodeConfirmation(id wire.Identity, a *nodeAction, seen provisioner.Seen, key string) *confirmation {
	p := &confirmation{
		Title: a.Label, To: "/nodes/" + string(id) + "/do/" + a.Name, Back: "/nodes/" + string(id), Button: a.Label, Grave: a.Grave, Touches: a.Touches,
		On: []string{string(id)}, Since: seen.OwnedSince, Fields: map[string]string{"seen": seenText(seen)},
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
func (c nodePages) actOnNode(v *visit) error {
	id, a, err := nodeAndAction(v)
	if err != nil {
		return err
	}
	seen, err := parseSeen(v.r.PostForm.Get("seen"))
	if err != nil {
		return err
	}
	if err := reason(v); err != nil {
		return c.askAgain(v, err, nodeConfirmation(id, a, seen, v.r.PostForm.Get("key")))
	}
	if err := c.do(v, id, a, seen); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/nodes/"+string(id)+"?done="+a.Name, http.StatusSeeOther)
	return nil
}

// do carries an action out. A node may have renewed since it was seen, which matters only to who gives its name away.
func (c nodePages) do(v *visit, id wire.Identity, a *nodeAction, seen provisioner.Seen) (err error) {
	p, ctx, form := c.cfg.Provisioner, v.r.Context(), v.r.PostForm
	owner := provisioner.Seen{OwnedSince: seen.OwnedSince}
	switch {
	case a.command != "":
		_, err = p.CommandNode(ctx, id, provisioner.Order{ID: form.Get("command"), Verb: a.command, Seen: owner}, v.cause())
	case a.Name == "grant":
		_, err = p.GrantNode(ctx, id, provisioner.GrantOrder{ID: form.Get("command"), KeyHash: form.Get("key"), Seen: seen}, v.cause())
	case a.Name == "retire":
		err = p.RetireNode(ctx, id, v.cause(), seen)
	default:
		err = p.RevokeNode(ctx, id, v.cause(), owner)
	}
	return err
}
