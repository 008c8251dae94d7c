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

// maxWaiting bounds the page; the longest waiting come first, and a filter finds the rest.
const maxWaiting = 200

// approvalsPage is the pending list.
type approvalsPage struct {
	Prefix   string
	Waiting  []*waiting.Key
	More     int  // waiting keys not shown
	Tick     bool // tick all keys shown
	Rejected []*orders.Answer
	Done     string
	Problem  string // of the request

	approved map[string]*orders.Answer // by key and identity: not used yet
}

// All is the number of waiting keys.
func (p *approvalsPage) All() int { return len(p.Waiting) + p.More }

// Approved is the unused approval of a key, or nil.
func (p *approvalsPage) Approved(w *waiting.Key) *orders.Answer {
	return p.approved[w.KeyHash+string(w.Identity)]
}

// Approvals is the number of approved keys on the page.
func (p *approvalsPage) Approvals() int {
	return p.count(func(w *waiting.Key) bool { return p.Approved(w) != nil })
}

// Ticks is the number of keys that "tick all" ticks.
func (p *approvalsPage) Ticks() int { return p.count(p.Approvable) }

func (p *approvalsPage) count(is func(*waiting.Key) bool) (n int) {
	for _, w := range p.Waiting {
		if is(w) {
			n++
		}
	}
	return n
}

// Approvable reports whether a key waits for approval. Deferred keys, and keys that ask for a taken name, are ticked
// one by one.
func (p *approvalsPage) Approvable(w *waiting.Key) bool {
	return w.Code == wire.CodeApprovalPending && p.Approved(w) == nil
}

// TickLink toggles "tick all".
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

var verdicts = []*action{
	{
		Name:  "approve",
		Label: "Approve",
		Touches: []string{
			"Each key can enroll under its name, once, within a day.",
			"The node gets a certificate and a configuration at its next request, and joins the fleet.",
		},
		Done: "Approved: each node gets its certificate at its next request, within seconds to minutes.",
	},
	{
		Name:   "reject",
		Label:  "Reject",
		Danger: true,
		Touches: []string{
			"Each key is denied from now on, whatever the policy says.",
			"Other keys with the same name are not affected.",
			"You can still approve it later: rejected keys are listed below the waiting ones.",
		},
		Done: "Rejected: each key is denied from now on.",
	},
	{
		Name:  "forget",
		Label: "Forget",
		Touches: []string{
			"Each key leaves the list, and the verdict on it is lifted.",
			"A node that asks again waits again.",
		},
		Done: "Forgotten: a node that asks again waits again.",
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
		p.Problem = "Nothing is ticked: tick the keys to decide on."
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
			p.approved[w.KeyHash+string(w.Identity)], err = c.cfg.Orders.Keys.Approval(v.r.Context(), w)
			if err != nil {
				return err
			}
			p.Waiting = append(p.Waiting, w)
		}
	}
	return c.page(v, "approvals", "Approvals", p)
}

// eachShown is a key in a form: identity/key, or identity/key/rejection for a rejected one.
func eachShown(k operate.KeyChoice) string {
	text := string(k.Identity) + "/" + k.Key
	if k.Rejected {
		text += "/" + k.Rejection
	}
	return text
}

// Box is the form value of a rejected key: the order applies only to the rejection shown.
func (*approvalsPage) Box(a *orders.Answer) string {
	return eachShown(operate.KeyChoice{
		Identity:  a.Identity,
		Key:       a.KeyHash,
		Shown:     true,
		Rejected:  true,
		Rejection: a.ID,
	})
}

// readChosen is the inverse of eachShown.
func readChosen(each []string) ([]operate.KeyChoice, error) {
	if len(each) > maxWaiting {
		return nil, badRequest(fmt.Errorf("%d keys, limit %d at once", len(each), maxWaiting))
	}
	var all []operate.KeyChoice
	for _, text := range each {
		name, rest, _ := strings.Cut(text, "/")
		key, rejection, rejected := strings.Cut(rest, "/")
		id, err := wire.ParseName(name)
		if err != nil || key == "" {
			return nil, badRequest(fmt.Errorf("%.80q: want a name, a slash and the hash of a key", text))
		}
		all = append(all, operate.KeyChoice{
			Identity:  id,
			Key:       key,
			Shown:     true,
			Rejected:  rejected,
			Rejection: rejection,
		})
	}
	return all, nil
}

func (c approvalPages) decide(v *visit) error {
	if len(v.r.PostForm["each"]) == 0 {
		http.Redirect(v.w, v.r, "/approvals?none", http.StatusSeeOther)
		return nil
	}
	return c.ordered(verdicts, c.verdict)(v)
}

func (c approvalPages) verdict(v *visit, o *order) error {
	all, err := readChosen(v.r.PostForm["each"])
	if err != nil {
		return err
	}
	o.Back, o.Fields = "/approvals", url.Values{"verdict": {o.Name}, "each": v.r.PostForm["each"]}
	for _, one := range all {
		on := fmt.Sprintf("%s, key %s", one.Identity, short(one.Key))
		if one.Rejected {
			on += ", which is rejected"
		}
		o.On = append(o.On, on)
	}
	o.do = func(ctx context.Context, cause trust.Cause) error { return c.say(ctx, o.Name, all, cause) }
	return nil
}

// say gives the verdict on each key, and joins the errors: verdicts are independent, and repeating one is harmless.
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
	return fmt.Errorf("%d of %d are done; the rest failed: %w", len(all)-len(errs), len(all), errors.Join(errs...))
}
