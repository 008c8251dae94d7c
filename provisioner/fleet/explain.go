package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/provisioner/orders"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
)

const (
	// slowToConfirm is the age from which a missing confirmation is explained. A node confirms within seconds, and
	// retries within a minute.
	slowToConfirm = 5 * time.Minute

	maxRefusals = 5 // refusals explained: older ones mostly repeat them
	maxVerdicts = 5 // keys explained: few keys compete for one name
)

// An Explanation is the status of a node, and what an operator can do.
type Explanation struct {
	Identity wire.Identity     `json:"identity"`
	State    provisioner.State `json:"state"`
	Waiting  int               `json:"waiting"` // number of keys that wait for the name
	Findings []Finding         `json:"findings"`
	Refusals []HistoryItem     `json:"refusals,omitempty"` // since the node last enrolled, newest first
}

// A Finding is one fact about a node, with actions.
type Finding struct {
	Code string   `json:"code"` // such as in_fleet, or the code of a refusal
	Text string   `json:"text"` // a sentence
	Do   []Action `json:"do,omitempty"`
}

// A Foresee returns the code that the next request of an approved key gets, see [provisioner.Provisioner.Forecast].
type Foresee func(context.Context, *orders.Answer, *provisioner.Record, *orders.Grant) wire.Code

// Explain returns the status of a node. The error is [provisioner.ErrNoRecord] if nothing is known under this name.
func (x *Inspector) Explain(ctx context.Context, id wire.Identity, now time.Time,
	foresee Foresee) (*Explanation, error) {
	record, _, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	grant, _, err := x.log.Logs().Grant(id)
	if err != nil {
		return nil, err
	}
	waiting, err := x.waiting(ctx, id, record)
	if err != nil {
		return nil, err
	}
	past, events, err := x.past(ctx, id)
	switch {
	case len(waiting) > 0 && errors.Is(err, provisioner.ErrNoRecord):
		past = &History{} // its events are not kept
	case err != nil:
		return nil, err
	}
	verdicts := x.verdicts(id)
	e := &explainer{
		Explanation: &Explanation{
			Identity: id,
			State:    provisioner.StateOf(record),
			Waiting:  len(waiting),
			Refusals: lastRefusals(past.Items),
		},
		now:    now,
		record: cmp.Or(record, &provisioner.Record{}),
		pauses: x.log.Logs().Pauses.List(),
	}
	_, e.tokenRevoked = x.log.Logs().Revocations.Get(
		(&trust.Revocation{Kind: trust.RevokedToken, Token: e.record.Token}).LogKey())
	e.state(events)
	if node, _ := x.index.Find(id); e.State == provisioner.StateProvisioned && !node.Seen.IsZero() {
		e.add("last_heard", "It was last seen at %s.", stamp(node.Seen))
		e.connection(node.Liveness())
	}
	e.admittedByApproval(verdicts)
	approved := make(map[string]bool)
	for _, a := range verdicts {
		next := wire.Code("")
		if a.Verdict == orders.VerdictApprove && a.Open(now) {
			next = foresee(ctx, a, record, grant)
			approved[a.KeyHash] = next == "" || next == wire.CodePaused
		}
		e.verdict(a, next)
	}
	if waits(grant, record, now) && e.record.GrantApplies(grant, now) {
		approved[grant.KeyHash] = true
	}
	e.decided = e.Waiting > 0
	for _, w := range waiting {
		if !approved[w.KeyHash] {
			e.decided = false
			e.waitingKey(w)
		}
	}
	e.grant(grant)
	e.refusals()
	e.certificates(x)
	e.anyTime()
	return e.Explanation, nil
}

type explainer struct {
	*Explanation
	now    time.Time
	record *provisioner.Record // empty if there is none
	pauses []*orders.Pause

	tokenRevoked bool // of the record
	decided      bool // each waiting key can enroll
}

// add adds a finding; the caller sets its actions.
func (e *explainer) add(code, format string, args ...any) *Finding {
	e.Findings = append(e.Findings, Finding{Code: code, Text: fmt.Sprintf(format, args...)})
	return &e.Findings[len(e.Findings)-1]
}

func (e *explainer) about(verb, key, text string) Action {
	return Action{Verb: verb, Identity: e.Identity, Key: key, Text: text}
}

func (e *explainer) doctor(why string) Action {
	switch e.record.Protocol {
	case provisioner.ProtocolChoria:
		return Action{Text: "read the log of the Choria server: " + why}
	case provisioner.ProtocolPuppet:
		return Action{Text: "run `puppet agent --test` on the machine: " + why}
	}
	return Action{Text: "run `muster server doctor` on the machine: " + why}
}

func (e *explainer) state(events []events.Event) {
	r := e.record
	switch e.State {
	case provisioner.StateEnrolled:
		e.enrolled(r)
		e.lastOrder(events)
	case provisioner.StateProvisioned:
		e.provisioned(r)
		e.lastOrder(events)
	case provisioner.StateRevoked:
		e.add("revoked", "The node was revoked%s, and cannot enroll.", ordered(r)).Do =
			e.free("if the node may come back")
	case provisioner.StateRetired:
		if r.Awaiting {
			e.add("awaiting", "The node was retired%s, and its name is kept: a machine gets it with its one-time "+
				"token, by a grant, or by an approval of its key.", ordered(r)).Do = []Action{
				{Text: fmt.Sprintf("`muster node grant %s --one-time` makes a token for the machine", e.Identity)},
				e.about("node retire", "", "if the machine is gone: free the name"),
			}
			break
		}
		e.add("retired", "The name is free: the node was retired%s. The next node with this name is new.", ordered(r))
	default:
		e.add("never_enrolled", "The node has never enrolled, or its record was lost.")
	}
	if r.Fault != nil && e.State != provisioner.StateRevoked && e.State != provisioner.StateRetired {
		e.fault(r)
	}
	if r.Cloned != nil {
		e.add("cloned", "Two live machines use the node's key: %s. This was noticed at %s.", r.Cloned.Text(),
			stamp(r.Cloned.At)).Do = cloneRemedies()
	}
}

func (e *explainer) enrolled(r *provisioner.Record) {
	f := e.add("not_confirmed", "The node enrolled at %s (%s) and got certificate %s, but has not confirmed it yet.",
		stamp(r.Next.OfferedAt), ground(r), r.Next.Serial)
	switch {
	case !e.now.Before(r.Next.NotAfter):
		f = e.add("offer_ended", "The certificate expired at %s; the same key gets another one at its next request.",
			stamp(r.Next.NotAfter))
	case len(e.Refusals) > 0 && e.Refusals[0].Code == wire.CodeOfferUnusable:
		return // the refusal says why the node cannot confirm
	case e.now.Sub(r.Next.OfferedAt) < slowToConfirm:
		f.Do = []Action{{Text: "wait: a node confirms within seconds, and keeps trying"}}
		return
	}
	f.Do = append([]Action{
		e.doctor("the agent could not write its files, cannot use its configuration, or has lost its connection"),
	}, e.free("if the machine is gone")...)
}

// free advises to free the name, unless machines ask for it: the next of them would get it, even a stolen one.
func (e *explainer) free(when string) []Action {
	asks := slices.ContainsFunc(e.Refusals, func(m HistoryItem) bool {
		return m.Code == wire.CodeIdentityRevoked || m.Code == wire.CodeIdentityTaken
	})
	if e.Waiting > 0 || asks {
		return []Action{{Text: when + ": machines ask for the name, and `muster node retire` would give it to the " +
			"next of them, so make sure first that only the right one asks"}}
	}
	return []Action{e.about("node retire", "", when+": the next machine that asks gets the name")}
}

func cloneRemedies() []Action {
	return []Action{
		{Text: "find the copy first, by address and by the times above; if no machine was copied, the key is stolen: " +
			"revoke the node"},
		{Text: "on the copy, stop the agent, remove its ssl directory, and give the machine a name of its own"},
		{Text: "then have the right machine make a new key: stop its agent, remove its ssl directory, start it, and " +
			"grant the name to the key that its log shows"},
	}
}

// waiting returns the keys that wait for a name, longest first.
func (x *Inspector) waiting(ctx context.Context, id wire.Identity, r *provisioner.Record) ([]*waiting.Key, error) {
	var all []*waiting.Key
	err := x.log.Waiters(ctx, id, func(w *waiting.Key, _ trust.Revision) error {
		if x.log.Logs().Answers.Rejection(id, w.KeyHash) == nil && !r.HasEnrolled(w, false) {
			all = append(all, w)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b *waiting.Key) int { return a.Since.Compare(b.Since) })
	return all[:min(len(all), maxVerdicts)], err
}

// waitingKey explains a waiting key. Each action names the key, since several may wait for the same name.
func (e *explainer) waitingKey(w *waiting.Key) {
	f := e.add(string(w.Code), "The key %s from %s has waited for the name since %s, and asked last at %s: %s.",
		w.KeyHash, cmp.Or(w.Source, "an unknown address"), stamp(w.Since), stamp(w.LastAsked), withCause(w.Code,
			strings.Join(w.Reasons, "; ")))
	compared := "its log shows this key"
	if w.Protocol != "" {
		compared = fmt.Sprintf("this is its key (docs/%s.md says how to see that)", w.Protocol)
	}
	switch w.Code {
	case wire.CodeApprovalPending:
		f.Do = []Action{e.about("node approve", w.KeyHash, "admit the machine, if "+compared)}
	case wire.CodeIdentityTaken:
		if e.record.Awaits() {
			f.Do = []Action{e.about("node approve", w.KeyHash, "give it the name, if "+compared)}
			break
		}
		if p := provisioner.Protocol(w.Protocol); p != e.record.Protocol {
			f.Do = []Action{{Text: fmt.Sprintf("the name is enrolled over protocol %s, and this machine asks over %s: "+
				"if it has replaced the former one, `muster node retire` gives the name to the next machine that "+
				"asks, so make sure first that only the right one asks", e.record.Protocol, p)}}
			break
		}
		f.Do = []Action{
			e.about("node grant", w.KeyHash,
				"give it the name, if the machine was reinstalled, and "+compared),
		}
	default:
		f.Do = Remedies(w.Code, e.Identity, w.Token)
	}
	f.Do = append(f.Do, e.about("node reject", w.KeyHash, "keep this key out, if no machine of yours has it"))
}

func withCause(code wire.Code, cause string) string {
	if cause == "" {
		return string(code)
	}
	return string(code) + " (" + cause + ")"
}

func (e *explainer) provisioned(r *provisioner.Record) {
	e.add("in_fleet", "The node is in the fleet (%s), with certificate %s until %s.",
		ground(r), r.Current.Serial, stamp(r.Current.NotAfter))
	if !e.now.Before(r.Current.NotAfter) {
		e.ended(r)
	}
	if n := r.Next; n != nil && n.Serial != r.Current.Serial {
		e.add("offer_not_confirmed", "The node was offered certificate %s at %s, but has not confirmed it yet.",
			n.Serial, stamp(n.OfferedAt))
	}
}

// anyTime adds what an operator can do with any node of the fleet, after what ends a fault.
func (e *explainer) anyTime() {
	if e.State != provisioner.StateProvisioned {
		return
	}
	last := &e.Findings[len(e.Findings)-1]
	last.Do = append(last.Do,
		e.about("node pending", "", "if the machine was reinstalled: find its new key, and grant the name to that key"))
	last.Do = append(append(last.Do, e.free("if the machine is gone")...),
		e.about("node revoke", "", "if the machine is stolen or broken into: bar it for good"))
}

func (e *explainer) connection(l Liveness) {
	switch l.Connected {
	case Yes:
		e.add("connected", "It is connected to broker %s since %s.", l.Broker, stamp(l.Since))
	case No:
		f := e.add("not_connected", "It is not connected to a broker, since %s.", stamp(l.Since))
		f.Do = []Action{e.doctor("if the machine is up, to see why the agent does not run or reaches no broker")}
	}
}

func (e *explainer) fault(r *provisioner.Record) {
	f := e.add("fault", "Since %s the node reports that it cannot renew as it should: %s.", stamp(r.Fault.At),
		r.Fault.Cause)
	f.Do = []Action{e.doctor("it shows what to correct; the agent notices by itself, and ends this report")}
	if i := cmp.Or(r.Current, r.Next); e.now.Before(i.NotAfter) {
		f.Text += fmt.Sprintf(" Its certificate ends in %s.", span.Format(i.NotAfter.Sub(e.now)))
	}
}

// ended explains an expired certificate: the agent enrolls again only if its token allows it.
func (e *explainer) ended(r *provisioner.Record) {
	f := e.add("certificate_ended", "The certificate expired without a renewal.")
	if r.Protocol == provisioner.ProtocolChoria {
		f.Do = []Action{{Text: "a Choria server does not renew, and its fleet refuses it now: set " +
			"plugin.choria.server.provision to true on the machine and restart the server: it then asks with a new " +
			"key, which needs a grant"}}
		return
	}
	if r.Protocol == provisioner.ProtocolPuppet {
		f.Do = append([]Action{{Text: "run `puppet ssl clean` and `puppet agent --test` on the machine: it then asks " +
			"with a new key, which needs a grant"}}, e.free("if the machine is gone")...)
		return
	}
	why := e.tokenFault(r)
	if why == "" {
		promise := " The agent enrolls again with its own key when it comes back."
		if slices.ContainsFunc(e.Refusals, func(m HistoryItem) bool {
			return m.Kind == Refused && m.Code != wire.CodeIdentityTaken && lastOf(m).After(r.Current.NotAfter)
		}) {
			promise = " The agent asks since then, and is refused; it enrolls again once the reason is gone."
		}
		f.Text += promise
		f.Do = []Action{e.doctor("the agent did not renew in time")}
		return
	}
	f.Text += " The agent does not enroll again by itself: " + why + "."
	f.Do = append([]Action{
		{Text: "put a new token on the machine; the agent then enrolls with its own key"},
		e.doctor("the agent did not renew in time"),
	}, e.free("if the machine is gone")...)
}

// tokenFault returns why a machine with the token on record does not enroll with it, or "".
func (e *explainer) tokenFault(r *provisioner.Record) string {
	token, err := jwt.Recall(r.Token, r.Signer, r.Terms)
	switch {
	case err != nil: // the node came back in a recovery, without a token
		return "the record does not know its token"
	case e.tokenRevoked:
		return "the token that it enrolled with is revoked"
	case !token.Expiry().IsZero() && !e.now.Before(token.Expiry()):
		return "the token that it enrolled with expired at " + stamp(token.Expiry())
	case !token.Default:
		return "the token that it enrolled with needs provision = true in server.conf"
	}
	return ""
}

// grant explains an unused grant; g may be nil.
func (e *explainer) grant(g *orders.Grant) {
	switch {
	case !waits(g, e.record, e.now):
	case e.record.GrantApplies(g, e.now):
		key := "Another key"
		if g.Secret != "" {
			key = "A Puppet agent with the one-time token"
		} else if g.KeyHash != "" {
			key = "The key " + g.KeyHash
		}
		e.add("granted", "%s can take the name over, once, until %s: granted by %s%s.",
			key, stamp(g.ExpiresAt), g.By, because(g.Why))
	default:
		e.add("grant_over", "The grant by %s of %s%s is void: the name has changed hands since.",
			g.By, stamp(g.At), because(g.Why))
	}
}

func (e *explainer) refusals() {
	since := ""
	if e.State != provisioner.StateNone {
		since = " since"
	}
	told := make(map[wire.Code]bool)
	for _, m := range e.Refusals {
		if told[m.Code] {
			continue
		}
		told[m.Code] = true
		if slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Code == string(m.Code) }) {
			continue // the waiting key explains it
		}
		what := "A node with this name"
		switch m.Kind {
		case Attempted:
			what = "An unauthenticated request for this name"
		case KeptOut:
			what = "The holder of its certificate " + m.Serial
		}
		text := fmt.Sprintf("%s was refused%s, last at %s: %s.", what, since, stamp(lastOf(m)),
			withCause(m.Code, m.Cause))
		if m.Code == wire.CodeOfferUnusable {
			text = fmt.Sprintf("The node reported, last at %s, that it cannot use what it was offered: %s.",
				stamp(lastOf(m)), m.Cause)
		}
		e.add(string(m.Code), "%s", text).Do = e.remedies(m)
	}
}

// remedies are the actions after a refusal that are true of the node's state.
func (e *explainer) remedies(m HistoryItem) (do []Action) {
	switch {
	case m.Code == wire.CodePaused:
		for _, p := range e.pauses {
			do = append(do, Action{
				Verb: "resume",
				Site: p.Site,
				Text: "end the pause; refused nodes retry by themselves",
			})
		}
		if do == nil {
			do = []Action{{Text: "wait: the pause has ended, and the node retries by itself"}}
		}
		return do
	case m.Code == wire.CodeIdentityRevoked && e.State != provisioner.StateRevoked:
		return []Action{{Text: "the key of the machine that asked is revoked, not the name: stop its agent if " +
			"another machine has replaced it; else remove its ssl directory, and compare its new key before you " +
			"admit it"}}
	case m.Code == wire.CodeIdentityRevoked,
		m.Code == wire.CodeIdentityCloned && e.record.Cloned != nil,
		(m.Code == wire.CodeApprovalPending || m.Code == wire.CodeIdentityTaken) && e.decided,
		m.Code == wire.CodeRejected && slices.ContainsFunc(e.Findings, isRejection):
		return nil // another finding has them
	case e.Waiting == 0 && (m.Code == wire.CodeApprovalPending || m.Code == wire.CodeIdentityTaken):
		return []Action{{Text: "no key waits for the name now; it waits again when its machine asks again"}}
	case m.Code == wire.CodeOfferUnusable && e.State == provisioner.StateProvisioned:
		return append(Remedies(m.Code, e.Identity, m.Token),
			e.about("node reconfigure", "", "once that is corrected: have the node fetch it at once"))
	case m.Kind == KeptOut && m.Code == wire.CodeNotIssued &&
		e.record.OwnedSince.After(e.record.FirstEnrolledAt):
		return []Action{{Text: fmt.Sprintf("the name has had another key since %s: grant it back only if that was a "+
			"mistake, to the key that then waits", stamp(e.record.OwnedSince))}}
	}
	return Remedies(m.Code, e.Identity, m.Token)
}

func isRejection(f Finding) bool { return f.Code == keyRejected }

// lastRefusals returns the newest refusal of each kind and code since the node last enrolled, newest first.
func lastRefusals(all []HistoryItem) []HistoryItem {
	var found []HistoryItem
	type of struct { // an unauthenticated request must not hide a refusal of the node itself
		kind Kind
		code wire.Code
	}
	codes := make(map[of]bool)
	for i := len(all) - 1; i >= 0 && len(found) < maxRefusals; i-- {
		switch m := all[i]; m.Kind {
		case Issued, Renewed, Applied:
			return found
		case Confirmed:
			codes[of{Refused, wire.CodeOfferUnusable}], codes[of{Attempted, wire.CodeNotIssued}] = true, true
		case Refused, Attempted, KeptOut:
			if !codes[of{m.Kind, m.Code}] {
				codes[of{m.Kind, m.Code}] = true
				found = append(found, m)
			}
		}
	}
	return found
}

func lastOf(m HistoryItem) time.Time {
	return cmp.Or(m.Last, m.At)
}

var grounds = map[provisioner.Reason]string{
	provisioner.ReasonNew:          "as a new machine",
	provisioner.ReasonReplay:       "with the same key",
	provisioner.ReasonContinue:     "with an earlier key",
	provisioner.ReasonContinuity:   "by continuity of its key",
	provisioner.ReasonGrant:        "by an operator's grant",
	provisioner.ReasonRenew:        "by renewal",
	provisioner.ReasonOneTimeToken: "by a token for this name alone",
}

func ground(r *provisioner.Record) string {
	g := cmp.Or(grounds[r.Decision.Reason], string(r.Decision.Reason))
	if r.Protocol != provisioner.ProtocolMuster {
		g += ", over protocol " + r.Protocol.String()
	}
	return g
}

// ordered describes the order that set a record's state: time, operator and reason.
func ordered(r *provisioner.Record) string {
	if r.Operator == nil {
		return " at " + stamp(r.UpdatedAt)
	}
	return fmt.Sprintf(" at %s by %s%s", stamp(r.UpdatedAt), r.Operator.By, because(r.Operator.Why))
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", why)
}
