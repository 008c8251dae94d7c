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

// doneBy are the events that prove that a command was carried out.
var doneBy = map[wire.Verb]events.Type{
	wire.VerbReprovision: events.Provisioned,
	wire.VerbReconfigure: events.Provisioned,
	wire.VerbRestart:     events.ServerStartup,
	wire.VerbShutdown:    events.ServerShutdown,
}

// VerbSentences say what a node was commanded.
var VerbSentences = map[wire.Verb]string{
	wire.VerbReprovision: "to enroll again",
	wire.VerbReconfigure: "to fetch its configuration",
	wire.VerbRestart:     "to restart its agent",
	wire.VerbShutdown:    "to stop its agent",
}

// A Command is the last command to a node, and its result.
type Command struct {
	Command string    // id
	Ended   time.Time // when it was done or refused; zero: unknown
	Refused wire.Code // code of the refusal, at Ended
	Cause   string    // of that

	verb    wire.Verb
	by, why string
	at      time.Time // when it was first given
	taken   bool      // acknowledged by the node
}

// CommandOf returns the last command among a node's events, or nil. Repetitions with the same id are one command.
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

// follow finds the command's result. After a refusal it looks further, since a refused node may still enroll.
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

// lastOrder explains the last command to a node, and whether its agent has stopped.
func (e *explainer) lastOrder(emitted []events.Event) {
	if o := CommandOf(emitted); o != nil {
		e.order(o)
	}
	for _, last := range slices.Backward(emitted) {
		switch last.Type {
		case events.ServerStartup, events.ServerAlive:
			return
		case events.ServerShutdown:
			e.add("agent_ended", "The agent stopped at %s, and was not seen since.", stamp(last.Time)).Do =
				[]Action{{Text: "start the agent on the machine (`systemctl start muster-server`), if the node " +
					"belongs to the fleet; the agent's log says why it stopped"}}
			return
		}
	}
}

func (e *explainer) order(o *Command) {
	var became string
	var do []Action
	switch {
	case o.Refused != "":
		became = "the node was refused at " + stamp(o.Ended) + ": " + string(o.Refused)
	case !o.Ended.IsZero():
		became = "done at " + stamp(o.Ended)
	case o.taken:
		became = "the node acknowledged it, but has not reported it done"
		if e.now.Sub(o.at) >= slowToConfirm {
			do = []Action{e.doctor("the agent has not carried out the command")}
		}
	default:
		became = "the node did not answer, and may not have received it"
		do = []Action{e.about("node "+string(o.verb), "", "send the command again")}
	}
	e.add("commanded", "%s commanded the node at %s %s%s: %s.",
		o.by, stamp(o.at), VerbSentences[o.verb], because(o.why), became).Do = do
}

// verdicts returns the verdicts about keys of id, newest first.
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

// admitted reports whether a key has the name now.
func (e *explainer) admitted(key string) bool {
	if e.State != provisioner.StateEnrolled && e.State != provisioner.StateProvisioned {
		return false
	}
	return slices.ContainsFunc([]*provisioner.Issued{e.record.Current, e.record.Next},
		func(i *provisioner.Issued) bool {
			return i != nil && i.KeyHash == key
		})
}

func (e *explainer) admittedByApproval(verdicts []*orders.Answer) {
	spent := e.record.Approval
	if spent == nil || !e.admitted(spent.KeyHash) {
		return
	}
	why := ""
	if i := slices.IndexFunc(verdicts, func(a *orders.Answer) bool { return a.ID == spent.ID }); i >= 0 {
		why = because(verdicts[i].Why)
	}
	e.add("approved", "The node's key enrolled at %s with the approval of %s%s.", stamp(spent.At), spent.By, why)
}

const keyRejected = "key_rejected"

// verdict explains a verdict on a key. next is the code of the key's next request, for an open approval.
func (e *explainer) verdict(a *orders.Answer, next wire.Code) {
	spent := e.record.Approval
	switch {
	case a.Verdict == orders.VerdictReject:
		e.add(keyRejected, "The key %s was rejected at %s by %s%s, and cannot enroll.",
			a.KeyHash, stamp(a.At), a.By, because(a.Why)).Do =
			[]Action{
				e.about("node approve", a.KeyHash, "approve the rejected key after all"),
				e.about("node forget", a.KeyHash, "lift the rejection, so that the key waits again"),
			}
	case a.Verdict != orders.VerdictApprove, e.admitted(a.KeyHash), spent != nil && !a.At.After(spent.At):
		// The verdict was lifted, the approval was used, or a later one was.
	case a.Open(e.now):
		e.open(a, next)
	default:
		e.add("approval_ended", "The key %s was approved at %s by %s%s, but did not ask before the approval expired "+
			"at %s.",
			a.KeyHash, stamp(a.At), a.By, because(a.Why), stamp(a.ExpiresAt)).Do =
			[]Action{e.about("node approve", a.KeyHash, "approve the key again, once it waits")}
	}
}

// open explains an approval that has not expired.
func (e *explainer) open(a *orders.Answer, next wire.Code) {
	said := "The key " + a.KeyHash + " was approved at " + stamp(a.At) + " by " + a.By + because(a.Why)
	switch next {
	case "":
		e.add("key_approved", "%s: it enrolls at its next request, until %s.", said, stamp(a.ExpiresAt))
	case wire.CodePaused:
		e.add("key_approved", "%s: it enrolls at its next request after the pause ends, until %s.", said,
			stamp(a.ExpiresAt))
	case wire.CodeApprovalPending:
		e.add("approval_over", "%s, for a node that has lost the name since: the approval is void.", said).Do =
			[]Action{e.about("node approve", a.KeyHash, "approve the key again, once it waits")}
	case wire.CodeIdentityTaken:
		e.add("approval_over", "%s, but the name belongs to another key: the approval is void.", said).Do =
			[]Action{e.about("node grant", a.KeyHash, "give the name to the approved key instead")}
	case wire.CodeIdentityRevoked:
		e.add("approval_over", "%s, but the name or the key is revoked: the approval is void.", said)
	default:
		e.add("key_approved", "%s. Whether the key can enroll is not known now: %s.", said, next)
	}
}
