package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// maxWaiting bounds the page; the longest waiting come first, and a filter finds the rest.
const maxWaiting = 200

// approvalsPage is the pending list.
type approvalsPage struct {
	listForm

	Waiting   []pendingKey
	All       int // waiting keys, also those that are not shown
	Approvals int // approved keys on the page
	Ticks     int // keys that "tick all" ticks
	Rejected  []*orders.Answer
	Done      string
}

// A pendingKey is a waiting key, with its approval if that is not used yet.
type pendingKey struct {
	*waiting.Key

	Approved *orders.Answer
}

// Approvable reports whether a key waits for approval. Other keys are ticked one by one.
func (k pendingKey) Approvable() bool { return k.Code == wire.CodeApprovalPending && k.Approved == nil }

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
	p := &approvalsPage{listForm: formOf(v), Done: done(v, verdicts)}
	if p.Has("none") {
		p.Problem = "Nothing is ticked: tick the keys to decide on."
	}
	filter, waiting, err := c.waiting(v, p.Values)
	if _, wrong := errors.AsType[*mistake](err); wrong {
		return c.list(v, "approvals", "Approvals", &p.listForm, p, err)
	}
	if err != nil {
		return err
	}
	for _, a := range c.cfg.Orders.Keys.Rejected() {
		if filter.SelectsName(a.Identity) && filter.Sites.Has(a.Site) && len(p.Rejected) < maxWaiting {
			p.Rejected = append(p.Rejected, a)
		}
	}
	for _, w := range waiting {
		if p.All++; p.All > maxWaiting {
			continue
		}
		k := pendingKey{Key: w}
		if k.Approved, err = c.cfg.Orders.Keys.Approval(v.r.Context(), w); err != nil {
			return err
		}
		if k.Approved != nil {
			p.Approvals++
		} else if k.Approvable() {
			p.Ticks++
		}
		p.Waiting = append(p.Waiting, k)
	}
	return c.page(v, "approvals", "Pending", p)
}

// waiting returns the waiting keys that a form selects, and its filter.
func (c approvalPages) waiting(v *visit, form url.Values) (*fleet.PendingFilter, []*waiting.Key, error) {
	given := maps.Clone(form)
	if name := form.Get("q"); name != "" {
		given.Set("prefix", strings.ToLower(strings.TrimSpace(name)))
	}
	filter, err := fleet.ParsePending(given)
	if err != nil {
		return nil, nil, badRequest(err)
	}
	filter.Sites = v.login.Sites
	all, err := c.cfg.Orders.Keys.Waiting(v.r.Context(), "")
	return filter, slices.DeleteFunc(slices.Clone(all), func(w *waiting.Key) bool { return !filter.Selects(w) }), err
}

// readChosen reads keys of a form: identity/key, or identity/key/rejection for a rejected key. The order applies only
// to the rejection shown.
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

// decide gives a verdict on the ticked keys, or has a job do so for all that match the filter.
func (c approvalPages) decide(v *visit) error {
	form := v.r.PostForm
	if form.Has("all") || form.Has("job") {
		return c.ordered(verdicts, func(v *visit, o *order) error { return manyPages(c).order(v, o, c.choose) })(v)
	}
	if len(form["each"]) == 0 {
		http.Redirect(v.w, v.r, "/approvals?none", http.StatusSeeOther)
		return nil
	}
	return c.ordered(verdicts, c.verdict)(v)
}

// choose leaves out keys that an approval has no effect on.
func (c approvalPages) choose(v *visit, a *action) (*job, error) {
	form := make(url.Values)
	for _, name := range []string{"q", "fact", "from"} {
		form[name] = v.r.PostForm[name]
	}
	_, all, err := c.waiting(v, form)
	if err != nil {
		return nil, err
	}
	j := newJob(v, a, "/approvals?"+form.Encode())
	for _, w := range all {
		if a.Name == "approve" && w.Code != wire.CodeApprovalPending {
			j.Other++
			continue
		}
		key := operate.KeyChoice{Identity: w.Identity, Key: w.KeyHash, Shown: true, Sites: v.login.Sites}
		j.choose(w.Identity, func(ctx context.Context, cause trust.Cause) error {
			return c.sayOf(ctx, a.Name, key, cause)
		})
	}
	return j, nil
}

func (c approvalPages) verdict(v *visit, o *order) error {
	all, err := readChosen(v.r.PostForm["each"])
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Sites = v.login.Sites
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
		if err := c.sayOf(ctx, verdict, one, cause); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d are done; the rest failed: %w", len(all)-len(errs), len(all), errors.Join(errs...))
}

func (c approvalPages) sayOf(ctx context.Context, verdict string, of operate.KeyChoice, cause trust.Cause) (err error) {
	switch verdict {
	case "approve":
		_, err = c.cfg.Orders.Keys.Approve(ctx, of, 0, cause)
	case "reject":
		_, err = c.cfg.Orders.Keys.Reject(ctx, of, cause)
	default:
		_, err = c.cfg.Orders.Keys.Forget(ctx, of, cause)
	}
	return err
}
