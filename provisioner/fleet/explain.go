package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

const (
	// slowToConfirm is when a node that was offered a certificate should have
	// confirmed it: it takes seconds, and is tried again within a minute.
	slowToConfirm = 5 * time.Minute

	maxRefusals = 5 // of the last ones are explained: they repeat
	maxVerdicts = 5 // keys with a verdict are explained: few machines fight for one name
)

// An Explanation says how a node stands, and what an operator can do.
type Explanation struct {
	Identity wire.Identity     `json:"identity"`
	State    provisioner.State `json:"state"`
	Findings []Finding         `json:"findings"`
	Refusals []Moment          `json:"refusals,omitempty"` // the last ones since it was last let in, the newest first
}

// A Finding is one thing to know about a node, with what can be done about it.
type Finding struct {
	Code string   `json:"code"` // such as in_fleet; of a refusal its code
	Text string   `json:"text"` // a sentence
	Do   []Action `json:"do,omitempty"`
}

// A Foresee says what the key of an open approval is told when it asks next: see
// [provisioner.Provisioner.Forecast].
type Foresee func(context.Context, *orders.Answer, *provisioner.Record, *orders.Grant) wire.Code

// Explain says how a node stands at now, and what comes of approvals as foresee has it. The
// error is [provisioner.ErrNoRecord] if nothing is known under this name.
func (x *Inspector) Explain(ctx context.Context, id wire.Identity, now time.Time, foresee Foresee) (*Explanation, error) {
	record, _, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	grant, _, err := x.log.Logs().Grant(id)
	if err != nil {
		return nil, err
	}
	past, events, err := x.past(ctx, id)
	if err != nil {
		return nil, err
	}
	verdicts := x.verdicts(id)
	e := &explainer{
		Explanation: &Explanation{Identity: id, State: provisioner.StateNone, Refusals: lastRefusals(past.Moments)},
		now:         now,
		record:      record,
	}
	if record != nil {
		e.State = record.State
	}
	e.state(events)
	if node, _ := x.index.Find(id); e.State == provisioner.StateProvisioned && !node.Seen.IsZero() {
		e.add("last_heard", "It was last heard of at %s.", stamp(node.Seen))
	}
	e.admittedByApproval(verdicts)
	for _, a := range verdicts {
		next := wire.Code("")
		if a.Verdict == orders.VerdictApprove && a.Open(now) {
			next = foresee(ctx, a, record, grant)
		}
		e.verdict(a, next)
	}
	e.grant(grant)
	e.refusals()
	return e.Explanation, nil
}

// An explainer puts an explanation together.
type explainer struct {
	*Explanation
	now    time.Time
	record *provisioner.Record // nil if there is none
}

// add adds a finding, for do and doing to say what can be done about it.
func (e *explainer) add(code, format string, args ...any) *Finding {
	e.Findings = append(e.Findings, Finding{Code: code, Text: fmt.Sprintf(format, args...)})
	return &e.Findings[len(e.Findings)-1]
}

// about is a verb about the node.
func (e *explainer) about(verb, text string) Action {
	return Action{Verb: verb, Identity: e.Identity, Text: text}
}

// doctor is what helps where only the machine knows more.
func doctor(why string) Action {
	return Action{Text: "run `muster server doctor` on the machine: " + why}
}

// state explains the state that a node is in.
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
		e.add("revoked", "It is kept out: revoked%s.", ordered(r)).Do =
			[]Action{e.about("node retire", "it may enroll again, as a new machine")}
	case provisioner.StateRetired:
		e.add("retired", "Its name is free: retired%s. The next machine that comes with it is treated as new.", ordered(r))
	default:
		e.unrecorded()
	}
	if r != nil && r.Cloned != nil {
		e.add("cloned", "Two live machines use its key; that was noticed at %s.", stamp(r.Cloned.At)).Do =
			[]Action{e.about("node retire", "find the copy first; then one of them may enroll anew")}
	}
}

// unrecorded explains a node without a record.
func (e *explainer) unrecorded() {
	i := slices.IndexFunc(e.Refusals, func(m Moment) bool { return m.Kind == KeptOut })
	if i < 0 {
		e.add("never_enrolled", "It has never been enrolled.")
		return
	}
	e.add("record_lost", "Certificate %s was issued to it and is on no record: the store is older, as after a restore.", e.Refusals[i].Serial).Do =
		[]Action{{Text: "wait: it enrolls again by itself if its token is still good, once it was refused for ten minutes"}}
}

// enrolled explains a node that has not confirmed its first certificate.
func (e *explainer) enrolled(r *provisioner.Record) {
	f := e.add("not_confirmed", "It was let in at %s (%s) and given certificate %s, and has not confirmed it yet.",
		stamp(r.Next.OfferedAt), ground(r), r.Next.Serial)
	switch {
	case !e.now.Before(r.Next.NotAfter):
		f = e.add("offer_ended", "That certificate has ended at %s; the same key gets another one when it asks.", stamp(r.Next.NotAfter))
	case len(e.Refusals) > 0 && e.Refusals[0].Code == wire.CodeOfferUnusable:
		return // it has said what keeps it
	case e.now.Sub(r.Next.OfferedAt) < slowToConfirm:
		f.Do = []Action{{Text: "wait: a machine confirms within seconds, and tries again for as long as it takes"}}
		return
	}
	f.Do = []Action{
		doctor("it could not write its files, was given a configuration that it cannot use, or has lost its connection"),
		e.about("node retire", "the machine is gone"),
	}
}

// provisioned explains a node that is part of the fleet.
func (e *explainer) provisioned(r *provisioner.Record) {
	e.add("in_fleet", "It is part of the fleet (%s), with certificate %s until %s.", ground(r), r.Current.Serial, stamp(r.Current.NotAfter)).Do =
		[]Action{
			e.about("node revoke", "keep it out, for good"),
			e.about("node pending", "the machine was reinstalled: find its new key, and grant the name to that"),
			e.about("node retire", "the machine is gone"),
		}
	if !e.now.Before(r.Current.NotAfter) {
		e.add("certificate_ended", "That certificate has ended without a renewal. The machine enrolls again with its own key when it comes back.").Do =
			[]Action{doctor("it did not renew in time")}
	}
	if n := r.Next; n != nil && n.Serial != r.Current.Serial {
		e.add("offer_not_confirmed", "It was offered certificate %s at %s, and has not confirmed it yet.", n.Serial, stamp(n.OfferedAt))
	}
}

// grant explains a grant that waits for its key; g may be nil.
func (e *explainer) grant(g *orders.Grant) {
	switch {
	case !waits(g, e.record, e.now):
	case e.record.GrantApplies(g, e.now):
		key := "Another key"
		if g.KeyHash != "" {
			key = "The key " + g.KeyHash
		}
		e.add("granted", "%s may take the name over, once, until %s: granted by %s%s.", key, stamp(g.ExpiresAt), g.By, because(g.Why))
	default:
		e.add("grant_over", "The grant by %s of %s%s lets no key in any more: another machine has got or lost the name since.",
			g.By, stamp(g.At), because(g.Why))
	}
}

// refusals explains the last refusals, the newest first.
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
		what := "A machine under this name"
		switch m.Kind {
		case Attempted:
			what = "A machine that has proven nothing, and uses this name,"
		case KeptOut:
			what = "The holder of its certificate " + m.Serial
		}
		text := fmt.Sprintf("%s was refused%s, last at %s: %s.", what, since, stamp(lastOf(m)), m.Code)
		if m.Code == wire.CodeOfferUnusable {
			text = fmt.Sprintf("It has said, last at %s, that it cannot use what it was offered: %s.", stamp(lastOf(m)), m.Cause)
		}
		e.add(string(m.Code), "%s", text).Do = Remedies(m.Code, e.Identity, m.Token)
	}
}

// lastRefusals returns the refusals since a node was last let in, the newest
// first, and of each kind and code only the newest. A node that has confirmed again uses what it
// was offered, and has what is on record.
func lastRefusals(all []Moment) []Moment {
	var found []Moment
	type of struct { // anybody can have an attempt refused, and it stands for none with a certificate
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

// lastOf is when a moment happened last.
func lastOf(m Moment) time.Time {
	if m.Last.IsZero() {
		return m.At
	}
	return m.Last
}

// grounds are the reasons in words.
var grounds = map[provisioner.Reason]string{
	provisioner.ReasonNew:          "as a new machine",
	provisioner.ReasonReplay:       "with the key that it had",
	provisioner.ReasonContinue:     "with a key that it had before",
	provisioner.ReasonContinuity:   "by continuity of its key",
	provisioner.ReasonGrant:        "by an operator's grant",
	provisioner.ReasonRenew:        "by renewal",
	provisioner.ReasonOneTimeToken: "by a token for this name alone",
}

// ground says on what ground a node was let in last.
func ground(r *provisioner.Record) string {
	if g := grounds[r.Decision.Reason]; g != "" {
		return g
	}
	return string(r.Decision.Reason)
}

// ordered says who has ordered the state that a record is in.
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
