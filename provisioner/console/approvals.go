package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/operate"
)

// maxWaiting is how many of those who wait are on the page, the longest first;
// chosen, a filter finds the others.
const maxWaiting = 200

// approvalsPage is who waits, and who was rejected.
type approvalsPage struct {
	Prefix   string
	Waiting  []*waiting.Key
	More     int  // that wait as well
	Tick     bool // all who are on the page
	Rejected []*orders.Answer
	Done     string
	Problem  string // with what was sent

	approved map[string]*orders.Answer // by key and identity: who has not come back since
}

// All is how many wait.
func (p *approvalsPage) All() int { return len(p.Waiting) + p.More }

// Approved is the approval of a key that has not come back since, nil if there is
// none.
func (p *approvalsPage) Approved(w *waiting.Key) *orders.Answer {
	return p.approved[w.KeyHash+string(w.Identity)]
}

// Approvals is how many of those on the page are approved.
func (p *approvalsPage) Approvals() int {
	return p.count(func(w *waiting.Key) bool { return p.Approved(w) != nil })
}

// Ticks is how many can be ticked at once.
func (p *approvalsPage) Ticks() int { return p.count(p.Approvable) }

// count counts keys on the page.
func (p *approvalsPage) count(is func(*waiting.Key) bool) (n int) {
	for _, w := range p.Waiting {
		if is(w) {
			n++
		}
	}
	return n
}

// Approvable reports whether an approval is what a key waits for. Those that are
// put off, or want another key's name, are ticked one by one.
func (p *approvalsPage) Approvable(w *waiting.Key) bool {
	return w.Code == wire.CodeApprovalPending && p.Approved(w) == nil
}

// TickLink is the address of the same page with all ticked, or none if all are.
func (p *approvalsPage) TickLink() string {
	v := make(url.Values)
	if p.Prefix != "" {
		v.Set("q", p.Prefix)
	}
	if !p.Tick {
		v.Set("tick", "all")
	}
	return "/approvals?" + v.Encode()
}

// verdicts are what can be said of keys that wait.
var verdicts = []*action{
	{
		Name:  "approve",
		Label: "Approve",
		Touches: []string{
			"Each key may have its name, once, within a day.",
			"The machine gets a certificate and a configuration when it asks again. It becomes part of the fleet.",
		},
		Done: "Approved: each machine gets its certificate when it asks again, within seconds to minutes.",
	},
	{
		Name:   "reject",
		Label:  "Reject",
		Danger: true,
		Touches: []string{
			"Each key is denied from now on, without asking the policy.",
			"Another key with the same name is not touched.",
			"It can be approved after all later: rejected keys are listed below those that wait.",
		},
		Done: "Rejected: each machine is denied from now on.",
	},
	{
		Name:  "forget",
		Label: "Forget",
		Touches: []string{
			"Each key leaves the list, and the verdict about it no longer counts.",
			"A machine that asks again waits again.",
		},
		Done: "Forgotten: if a machine asks again, it waits again.",
	},
}

func (c approvalPages) approvals(v *visit) error {
	p := &approvalsPage{
		Prefix:   strings.ToLower(strings.TrimSpace(v.r.FormValue("q"))),
		Done:     done(v, verdicts),
		Tick:     v.r.Form.Has("tick"),
		approved: make(map[string]*orders.Answer),
	}
	if v.r.Form.Has("none") {
		p.Problem = "Nothing was ticked: tick the machines that are meant."
	}
	waiting, err := c.cfg.Orders.Keys.Waiting(v.r.Context(), "")
	if err != nil {
		return err
	}
	rejected := make(map[string]bool)
	for _, a := range c.cfg.Orders.Keys.Rejected() {
		rejected[string(a.Identity)+"/"+a.KeyHash] = true
		if strings.HasPrefix(string(a.Identity), p.Prefix) && len(p.Rejected) < maxWaiting {
			p.Rejected = append(p.Rejected, a)
		}
	}
	for _, w := range waiting {
		switch {
		case !strings.HasPrefix(string(w.Identity), p.Prefix), rejected[string(w.Identity)+"/"+w.KeyHash]:
		case len(p.Waiting) == maxWaiting:
			p.More++
		default:
			if p.approved[w.KeyHash+string(w.Identity)], err = c.cfg.Orders.Keys.Approval(v.r.Context(), w); err != nil {
				return err
			}
			p.Waiting = append(p.Waiting, w)
		}
	}
	return c.page(v, "approvals", "Approvals", p)
}

// eachShown writes a key as a box to tick has it: identity/key, and for one that is shown as
// rejected identity/key/rejection.
func eachShown(k operate.KeyChoice) string {
	text := string(k.Identity) + "/" + k.Key
	if k.Rejected {
		text += "/" + k.Rejection
	}
	return text
}

// Box is what a box to tick a rejected key has: whoever lifts the rejection was shown it.
func (*approvalsPage) Box(a *orders.Answer) string {
	return eachShown(operate.KeyChoice{Identity: a.Identity, Key: a.KeyHash, Shown: true, Rejected: true, Rejection: a.ID})
}

// readChosen reads what was ticked, as eachShown writes it.
func readChosen(each []string) ([]operate.KeyChoice, error) {
	if len(each) > maxWaiting {
		return nil, badRequest(fmt.Errorf("%d machines, limit %d at once", len(each), maxWaiting))
	}
	var all []operate.KeyChoice
	for _, text := range each {
		name, rest, _ := strings.Cut(text, "/")
		key, rejection, rejected := strings.Cut(rest, "/")
		id, err := wire.ParseIdentity(name)
		if err != nil || key == "" {
			return nil, badRequest(fmt.Errorf("%.80q: want a name, a slash and the hash of a key", text))
		}
		all = append(all, operate.KeyChoice{Identity: id, Key: key, Shown: true, Rejected: rejected, Rejection: rejection})
	}
	return all, nil
}

// decide serves a verdict, once something is ticked.
func (c approvalPages) decide(v *visit) error {
	if len(v.r.PostForm["each"]) == 0 {
		http.Redirect(v.w, v.r, "/approvals?none", http.StatusSeeOther)
		return nil
	}
	return c.ordered(c.verdict)(v)
}

// verdict reads a verdict about each key that was ticked.
func (c approvalPages) verdict(v *visit) (*order, error) {
	a := named(verdicts, v.r.PostForm.Get("verdict"))
	if a == nil {
		return nil, errNoPage
	}
	all, err := readChosen(v.r.PostForm["each"])
	if err != nil {
		return nil, err
	}
	o := &order{action: a, Back: "/approvals", Fields: url.Values{"verdict": {a.Name}, "each": v.r.PostForm["each"]}}
	for _, one := range all {
		on := fmt.Sprintf("%s, key %s", one.Identity, short(one.Key))
		if one.Rejected {
			on += ", which is rejected"
		}
		o.On = append(o.On, on)
	}
	o.do = func(ctx context.Context, cause trust.Cause) error { return c.say(ctx, a.Name, all, cause) }
	return o, nil
}

// say says a verdict of each key. It goes on where one of them no longer waits, and says so in the end: each verdict
// stands by itself, and said again it is the same.
func (c approvalPages) say(ctx context.Context, verdict string, all []operate.KeyChoice, cause trust.Cause) error {
	var errs []error
	for _, one := range all {
		var err error
		switch verdict {
		case "approve":
			_, err = c.cfg.Orders.Keys.Approve(ctx, one, 0, cause)
		case "reject":
			_, err = c.cfg.Orders.Keys.Reject(ctx, one, cause)
		default:
			_, err = c.cfg.Orders.Keys.Forget(ctx, one, cause)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d are done; of the others: %w", len(all)-len(errs), len(all), errors.Join(errs...))
}
