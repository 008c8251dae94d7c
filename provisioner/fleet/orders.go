package fleet

import (
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
)

// doneBy are the events by which a node that was commanded is known to have done
// it: its confirmation is on record, or its agent has said so.
var doneBy = map[wire.Verb]events.Type{
	wire.VerbReprovision: events.Provisioned,
	wire.VerbReconfigure: events.Provisioned,
	wire.VerbRestart:     events.ServerStartup,
	wire.VerbShutdown:    events.ServerShutdown,
}

// verbSentences are the verbs in words.
var verbSentences = map[wire.Verb]string{
	wire.VerbReprovision: "to be provisioned again",
	wire.VerbReconfigure: "to ask for its configuration anew",
	wire.VerbRestart:     "to start its agent anew",
	wire.VerbShutdown:    "to stop its agent",
}

// A Command is the last command to a node, and what has become of it.
type Command struct {
	Command string    // its id
	Ended   time.Time // when it was done or refused, zero if neither is known
	Refused wire.Code // with Ended: the node was refused what it needs
	Cause   string    // of that

	verb    wire.Verb
	by, why string
	at      time.Time // by the provisioner's clock, when it was first given
	taken   bool      // the node has said so
}

// CommandOf returns the last command among the events of a node, nil if there is none. One that
// was sent again is the same.
func CommandOf(emitted []events.Event) *Command {
	var o *Command
	for _, e := range slices.Backward(emitted) {
		switch {
		case e.Type != events.Commanded:
		case o == nil:
			o = &Command{Command: e.Command, verb: e.Verb, by: e.By, why: e.Why, at: e.Time, taken: e.Cause == ""}
		case e.Command == o.Command:
			o.at, o.taken = e.Time, o.taken || e.Cause == ""
		}
	}
	if o != nil {
		o.follow(emitted)
	}
	return o
}

// follow finds out what has become of the order. A node that was refused may still come back once it was helped.
func (o *Command) follow(emitted []events.Event) {
	for i := range emitted {
		e := &emitted[i]
		switch {
		case e.Time.Before(o.at):
			continue
		case e.Type == doneBy[o.verb]:
			o.Ended, o.Refused, o.Cause = e.Time, "", ""
			return
		case e.Type == events.Refused && !wire.MeaningOf(e.Code).Retry && doneBy[o.verb] == events.Provisioned:
			o.Ended, o.Refused, o.Cause = e.Time, e.Code, e.Cause
		}
	}
}

// lastOrder explains the last command to a node that is let in, and what its agent has
// said last.
func (e *explainer) lastOrder(emitted []events.Event) {
	if o := CommandOf(emitted); o != nil {
		e.order(o)
	}
	for _, last := range slices.Backward(emitted) {
		switch last.Type {
		case events.ServerStartup, events.ServerAlive:
			return
		case events.ServerShutdown:
			e.add("agent_ended", "Its agent has ended at %s, and was not heard of since.", stamp(last.Time)).Do =
				[]Action{{Text: "start the agent on the machine, if that is to be in the fleet"}}
			return
		}
	}
}

func (e *explainer) order(o *Command) {
	var became string
	var do []Action
	switch {
	case o.Refused != "":
		became = "it was refused at " + stamp(o.Ended) + ": " + string(o.Refused)
	case !o.Ended.IsZero():
		became = "done at " + stamp(o.Ended)
	case o.taken:
		became = "it has taken the order, and was not heard to have done it"
		if e.now.Sub(o.at) >= slowToConfirm {
			do = []Action{doctor("it has an order that it has not carried out")}
		}
	default:
		became = "it has not answered, and may not have taken the order"
		do = []Action{e.about("node "+string(o.verb), "order it once more")}
	}
	e.add("commanded", "%s ordered it at %s %s%s: %s.", o.by, stamp(o.at), verbSentences[o.verb], because(o.why), became).Do = do
}

// verdicts returns the newest verdicts about keys of id, the last one first.
func (x *Inspector) verdicts(id wire.Identity) (all []*orders.Answer) {
	answers := x.log.Logs().Answers
	for key := range answers.All() {
		token, hash, _ := strings.Cut(key, ".")
		if token != id.SubjectToken() {
			continue
		}
		if a, _ := answers.Of(id, hash); a != nil {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *orders.Answer) int { return b.At.Compare(a.At) })
	return all[:min(len(all), maxVerdicts)]
}

// admitted reports whether a key has the name.
func (e *explainer) admitted(key string) bool {
	if e.State != provisioner.StateEnrolled && e.State != provisioner.StateProvisioned {
		return false
	}
	return slices.ContainsFunc([]*provisioner.Issued{e.record.Current, e.record.Next}, func(i *provisioner.Issued) bool {
		return i != nil && i.KeyHash == key
	})
}

// spent is the approval that let the present key in, nil if none did.
func (e *explainer) spent() *provisioner.SpentApproval {
	if e.record == nil {
		return nil
	}
	return e.record.Approval
}

func (e *explainer) admittedByApproval(verdicts []*orders.Answer) {
	spent := e.spent()
	if spent == nil || !e.admitted(spent.KeyHash) {
		return
	}
	why := ""
	if i := slices.IndexFunc(verdicts, func(a *orders.Answer) bool { return a.ID == spent.ID }); i >= 0 {
		why = because(verdicts[i].Why)
	}
	e.add("approved", "Its key was let in at %s with the approval of %s%s.", stamp(spent.At), spent.By, why)
}

// verdict explains what an operator has said of a key; next is what the key of an open approval is told next.
func (e *explainer) verdict(a *orders.Answer, next wire.Code) {
	key := func(verb, text string) Action {
		return Action{Verb: verb, Identity: e.Identity, Key: a.KeyHash, Text: text}
	}
	spent := e.spent()
	switch {
	case a.Verdict == orders.VerdictReject:
		e.add("key_rejected", "The key %s was rejected at %s by %s%s: it stays out.", a.KeyHash, stamp(a.At), a.By, because(a.Why)).Do =
			[]Action{
				key("node approve", "let the rejected key in after all"),
				key("node forget", "have the rejected key wait again"),
			}
	case a.Verdict != orders.VerdictApprove, e.admitted(a.KeyHash), spent != nil && !a.At.After(spent.At):
		// Taken back, used, or given before another key came in.
	case a.Open(e.now):
		e.open(a, next, key)
	default:
		e.add("approval_ended", "The key %s was approved at %s by %s%s, and did not come before that ended at %s.",
			a.KeyHash, stamp(a.At), a.By, because(a.Why), stamp(a.ExpiresAt)).Do =
			[]Action{key("node approve", "approve it again, once it waits")}
	}
}

// open explains an approval whose time is not over, by the code that its key is told next.
func (e *explainer) open(a *orders.Answer, next wire.Code, key func(verb, text string) Action) {
	said := "The key " + a.KeyHash + " was approved at " + stamp(a.At) + " by " + a.By + because(a.Why)
	switch next {
	case "":
		e.add("key_approved", "%s: it gets in with its next try, until %s.", said, stamp(a.ExpiresAt))
	case wire.CodePaused:
		e.add("key_approved", "%s: it gets in with its next try once enrollment is resumed, until %s.", said, stamp(a.ExpiresAt))
	case wire.CodeApprovalPending:
		e.add("approval_over", "%s, for the machine that has lost the name since: it lets no key in any more.", said).Do =
			[]Action{key("node approve", "approve it again, once it waits")}
	case wire.CodeIdentityTaken:
		e.add("approval_over", "%s, and the name belongs to another key: it lets no key in.", said).Do =
			[]Action{key("node grant", "let the approved key have the name instead")}
	case wire.CodeIdentityRevoked:
		e.add("approval_over", "%s, and the name or the key is revoked: it lets no key in.", said)
	default:
		e.add("key_approved", "%s. Whether it gets in cannot be said now: %s.", said, next)
	}
}
