package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/provisioner"
)

// maxWaiting is how many of those who wait are on the page, the longest first;
// chosen, a filter finds the others.
const maxWaiting = 200

// approvalsPage is who waits, and who was rejected.
type approvalsPage struct {
	Prefix   string
	Waiting  []*provisioner.Waiter
	More     int  // that wait as well
	Tick     bool // all who are on the page
	Rejected []*provisioner.Answer
	Done     string
	Problem  string // with what was sent

	approved map[string]*provisioner.Answer // by key and identity: who has not come back since
}

// All is how many wait.
func (p *approvalsPage) All() int { return len(p.Waiting) + p.More }

// Approved is the approval of a key that has not come back since, nil if there is
// none.
func (p *approvalsPage) Approved(w *provisioner.Waiter) *provisioner.Answer {
	return p.approved[w.KeyHash+string(w.Identity)]
}

// Approvals is how many of those on the page are approved.
func (p *approvalsPage) Approvals() int {
	return len(slices.DeleteFunc(slices.Clone(p.Waiting), func(w *provisioner.Waiter) bool { return p.Approved(w) == nil }))
}

// Approvable reports whether an approval is what a key waits for. Those that are
// put off, or want another key's name, are ticked one by one.
func (p *approvalsPage) Approvable(w *provisioner.Waiter) bool {
	return w.Code == wire.CodeApprovalPending && p.Approved(w) == nil
}

// Ticks is how many can be ticked at once.
func (p *approvalsPage) Ticks() int {
	return len(slices.DeleteFunc(slices.Clone(p.Waiting), func(w *provisioner.Waiter) bool { return !p.Approvable(w) }))
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
var verdicts = map[string]struct {
	label, done string
	touches     []string
}{
	"approve": {"Approve", "Approved: each machine gets its certificate when it asks again, within seconds to minutes.", []string{
		"%s may have its name, once, within a day.", "The machine gets a certificate and a configuration when it asks again. It becomes part of the fleet.",
	}},
	"reject": {"Reject", "Rejected: each machine is denied from now on.", []string{
		"%s is denied from now on, without asking the policy.", "Another key with the same name is not touched.", "It can be approved after all later: rejected keys are listed below those that wait.",
	}},
	"forget": {"Forget", "Forgotten: if a machine asks again, it waits again.", []string{
		"%s leaves the list, and what was said of it no longer counts.", "A machine that asks again waits again.",
	}},
}

func (c approvalPages) approvals(v *visit) error {
	p := &approvalsPage{Prefix: strings.ToLower(strings.TrimSpace(v.r.URL.Query().Get("q"))), Done: verdicts[v.r.URL.Query().Get("done")].done, Tick: v.r.URL.Query().Has("tick"), approved: make(map[string]*provisioner.Answer)}
	if v.r.URL.Query().Has("none") {
		p.Problem = "Nothing was ticked: tick the machines that are meant."
	}
	waiting, err := c.cfg.Provisioner.Waiting(v.r.Context(), "")
	if err != nil {
		return err
	}
	rejected := make(map[string]bool)
	for _, a := range c.cfg.Provisioner.Rejected() {
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
			if p.approved[w.KeyHash+string(w.Identity)], err = c.cfg.Provisioner.Approval(v.r.Context(), w); err != nil {
				return err
			}
			p.Waiting = append(p.Waiting, w)
		}
	}
	return c.page(v, "approvals", "Approvals", p)
}

// errNoneChosen means that nothing was ticked.
var errNoneChosen = errors.New("nothing is ticked: go back and tick the machines that are meant")

// eachShown writes a key as a box to tick has it: identity/key, and for one that is shown as
// rejected identity/key/rejection.
func eachShown(k provisioner.ShownKey) string {
	text := string(k.Identity) + "/" + k.KeyHash
	if k.Rejected {
		text += "/" + k.Rejection
	}
	return text
}

// Box is what a box to tick a rejected key has: whoever lifts the rejection was shown it.
func (*approvalsPage) Box(a *provisioner.Answer) string {
	return eachShown(provisioner.ShownKey{Identity: a.Identity, KeyHash: a.KeyHash, Rejected: true, Rejection: a.ID})
}

// readChosen reads what was ticked, as eachShown writes it.
func readChosen(v *visit) ([]provisioner.ShownKey, error) {
	each := v.r.PostForm["each"]
	if len(each) == 0 {
		return nil, &formError{errNoneChosen}
	}
	if len(each) > maxWaiting {
		return nil, &formError{fmt.Errorf("%d machines, limit %d at once", len(each), maxWaiting)}
	}
	var all []provisioner.ShownKey
	for _, text := range each {
		name, rest, _ := strings.Cut(text, "/")
		key, rejection, rejected := strings.Cut(rest, "/")
		id, err := wire.ParseIdentity(name)
		if err != nil || key == "" {
			return nil, &formError{fmt.Errorf("%.80q: want a name, a slash and the hash of a key", text)}
		}
		all = append(all, provisioner.ShownKey{Identity: id, KeyHash: key, Rejected: rejected, Rejection: rejection})
	}
	return all, nil
}

// verdictConfirmation says what a verdict will touch.
func verdictConfirmation(name string, all []provisioner.ShownKey) *confirmation {
	said := verdicts[name]
	p := &confirmation{
		Title: said.label, To: "/approvals/decide", Back: "/approvals", Button: said.label, Danger: name == "reject",
		Fields: map[string]string{"verdict": name},
	}
	who := "This key"
	if len(all) > 1 {
		who = "Each of these keys"
	}
	for _, text := range said.touches {
		p.Touches = append(p.Touches, strings.Replace(text, "%s", who, 1))
	}
	for _, one := range all {
		on := fmt.Sprintf("%s, key %s", one.Identity, short(one.KeyHash))
		if one.Rejected {
			on += ", which is rejected"
		}
		p.On, p.Each = append(p.On, on), append(p.Each, eachShown(one))
	}
	return p
}

// confirmVerdict says what a verdict will touch, and asks why.
func (c approvalPages) confirmVerdict(v *visit) error {
	name := v.r.PostForm.Get("verdict")
	if _, ok := verdicts[name]; !ok {
		return errNoPage
	}
	all, err := readChosen(v)
	if errors.Is(err, errNoneChosen) {
		http.Redirect(v.w, v.r, "/approvals?none", http.StatusSeeOther)
		return nil
	}
	if err != nil {
		return err
	}
	return c.page(v, "confirm", verdicts[name].label, verdictConfirmation(name, all))
}

// decide says a verdict of each that was ticked. It goes on where one of them no
// longer waits, and says so in the end: each verdict stands by itself, and said
// again it is the same.
func (c approvalPages) decide(v *visit) error {
	name := v.r.PostForm.Get("verdict")
	if _, ok := verdicts[name]; !ok {
		return errNoPage
	}
	all, err := readChosen(v)
	if err != nil {
		return err
	}
	if err := reason(v); err != nil {
		return c.askAgain(v, err, verdictConfirmation(name, all))
	}
	var errs []error
	for _, one := range all {
		switch name {
		case "approve":
			_, err = c.cfg.Provisioner.ApproveShown(v.r.Context(), one, 0, v.cause())
		case "reject":
			_, err = c.cfg.Provisioner.RejectNode(v.r.Context(), one.Identity, one.KeyHash, v.cause())
		default:
			_, err = c.cfg.Provisioner.ForgetShown(v.r.Context(), one, v.cause())
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		failed := len(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
		return fmt.Errorf("%d of %d are done; of the others: %w", len(all)-failed, len(all), err)
	}
	http.Redirect(v.w, v.r, "/approvals?done="+name, http.StatusSeeOther)
	return nil
}
