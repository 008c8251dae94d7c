package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/waiting"
)

// An action is an order that the console offers.
type action struct {
	Name    string   // in links
	Label   string   // on buttons
	Grave   bool     // it cannot be undone
	Danger  bool     // reversible, but bars nodes
	Touches []string // effects, for the confirmation page
	Done    string   // shown afterwards

	states  []provisioner.State // of nodes that it applies to
	command wire.Verb           // to the node, if it is a command
}

func named(actions []*action, name string) *action {
	if i := slices.IndexFunc(actions, func(a *action) bool { return a.Name == name }); i >= 0 {
		return actions[i]
	}
	return nil
}

func done(v *visit, actions []*action) string {
	if a := named(actions, v.r.URL.Query().Get("done")); a != nil {
		return a.Done
	}
	return ""
}

// An order is an action with its subject. It has a confirmation page that asks for the reason.
type order struct {
	*action

	Back   string      // page to return to
	On     []string    // names of the subjects
	Since  time.Time   // since when the node has its name; zero without a node
	Keys   []keyChoice // of a grant: the waiting key that it names, or those to choose from
	Many   *job        // an order for many; On is empty
	Max    int         // failures of Many
	Fields url.Values  // of the form

	To      string // target of the form
	Why     string // as sent
	Problem string // of the reason

	then string // page afterwards; "": Back
	do   func(context.Context, trust.Cause) error
}

// A keyChoice is a waiting key. Link leads to the form that names it; empty: this form names it.
type keyChoice struct {
	*waiting.Key

	Link string
}

// Choose reports whether the page must offer keys instead of the button.
func (o *order) Choose() bool { return len(o.Keys) > 0 && o.Keys[0].Link != "" }

// ordered serves orders: the confirmation page, and the order once a reason is given. subject sets what it is about.
func (c *Console) ordered(actions []*action, subject func(*visit, *order) error) func(*visit) error {
	return func(v *visit) error {
		a := named(actions, cmp.Or(v.r.PathValue("action"), v.r.PostForm.Get("verdict")))
		if a == nil {
			return errNoPage
		}
		o := &order{action: a, To: v.r.URL.Path}
		if err := subject(v, o); err != nil {
			return err
		}
		if !v.r.PostForm.Has("why") {
			return c.page(v, "confirm", o.Label, o)
		}
		cause, err := reason(v)
		if err != nil {
			o.Problem, o.Why = err.Error(), cause.Why
			c.show(v.w, v.r, v.login, http.StatusBadRequest, "confirm", o.Label, o)
			return nil
		}
		if err := o.do(v.r.Context(), cause); err != nil {
			return err
		}
		http.Redirect(v.w, v.r, cmp.Or(o.then, o.Back+"?done="+o.Name), http.StatusSeeOther)
		return nil
	}
}

func reason(v *visit) (trust.Cause, error) {
	cause := trust.Cause{By: v.login.By(), Why: strings.TrimSpace(v.r.PostForm.Get("why"))}
	if cause.Why == "" {
		return cause, errNoReason
	}
	if err := cause.Check(); err != nil {
		return cause, badRequest(err)
	}
	return cause, nil
}
