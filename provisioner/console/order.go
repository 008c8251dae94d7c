package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
)

// An action is something that an operator can order.
type action struct {
	Name    string   // in addresses
	Label   string   // on buttons
	Grave   bool     // it cannot be taken back
	Danger  bool     // it can, and keeps machines out
	Touches []string // what it does, for the page that asks first
	Done    string   // said when it is done

	states  []provisioner.State // of nodes in which it makes sense
	command wire.Verb           // to a node; empty: it is none
}

// named returns the action of that name, nil if there is none.
func named(actions []*action, name string) *action {
	if i := slices.IndexFunc(actions, func(a *action) bool { return a.Name == name }); i >= 0 {
		return actions[i]
	}
	return nil
}

// done says which of the actions was just ordered, as the address has it.
func done(v *visit, actions []*action) string {
	if a := named(actions, v.r.URL.Query().Get("done")); a != nil {
		return a.Done
	}
	return ""
}

// An order is an action with what it is about. It has a page that asks for the reason.
type order struct {
	*action

	Back   string     // the page that it is ordered from, to which it returns
	On     []string   // what it is about, by name
	Since  time.Time  // when the machine that it is about got its name; zero if it is about none
	Fields url.Values // what the form carries

	To      string // where the form goes
	Why     string // that was given
	Problem string // with that

	do func(context.Context, trust.Cause) error
}

// ordered serves the page of an order: it says what the order touches, and carries it out once a reason is given. Every
// change has one.
func (c *Console) ordered(of func(*visit) (*order, error)) func(*visit) error {
	return func(v *visit) error {
		o, err := of(v)
		if err != nil {
			return err
		}
		o.To = v.r.URL.Path
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
		http.Redirect(v.w, v.r, o.Back+"?done="+o.Name, http.StatusSeeOther)
		return nil
	}
}

// reason returns the operator with the reason in a form, or why that cannot be kept.
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
