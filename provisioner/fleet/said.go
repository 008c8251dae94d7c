package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// DoneBy are the events by which a node that was commanded is known to have done
// it: its confirmation is on record, or its agent has said so.
var DoneBy = map[wire.Verb]provisioner.EventType{
	wire.VerbReprovision: provisioner.EventProvisioned,
	wire.VerbReconfigure: provisioner.EventProvisioned,
	wire.VerbRestart:     provisioner.EventServerStartup,
	wire.VerbShutdown:    provisioner.EventServerShutdown,
}

// orders are the verbs in words.
var orders = map[wire.Verb]string{
	wire.VerbReprovision: "to be provisioned again", wire.VerbReconfigure: "to ask for its configuration anew",
	wire.VerbRestart: "to start its agent anew", wire.VerbShutdown: "to stop its agent",
}

// An order is the last command to a node, and what has become of it.
type order struct {
	verb    wire.Verb
	by, why string
	at      time.Time // by the provisioner's clock, when it was first given
	taken   bool      // the node has said so
	ended   time.Time // when it was done or refused, zero if neither is known
	refused wire.Code // with ended: the node was refused what it needs
}

// lastOrder returns the last command among events, nil if there is none. One that
// was sent again is the same.
func lastOrder(events []provisioner.Event) *order {
	var o *order
	var id string
	for i := len(events) - 1; i >= 0; i-- {
		switch e := &events[i]; {
		case e.Type != provisioner.EventCommanded:
		case o == nil:
			id, o = e.Command, &order{verb: e.Verb, by: e.By, why: e.Why, at: e.Time, taken: e.Cause == ""}
		case e.Command == id:
			o.at, o.taken = e.Time, o.taken || e.Cause == ""
		}
	}
	if o == nil {
		return nil
	}
	for i := range events {
		e := &events[i]
		switch {
		case e.Time.Before(o.at):
			continue
		case e.Type == DoneBy[o.verb]:
			o.refused = ""
		case e.Type == provisioner.EventRefused && !wire.MeaningOf(e.Code).Retry && DoneBy[o.verb] == provisioner.EventProvisioned:
			o.refused = e.Code
		default:
			continue
		}
		// Who was refused may still come back once somebody has helped.
		if o.ended = e.Time; o.refused == "" {
			break
		}
	}
	return o
}

// order explains the last command to a node that is let in, and what its agent has
// said last.
func (e *explainer) order(events []provisioner.Event) {
	if o := lastOrder(events); o != nil {
		e.explainOrder(o)
	}
	i := len(events) - 1
	for ; i >= 0; i-- {
		if t := events[i].Type; t == provisioner.EventServerStartup || t == provisioner.EventServerAlive || t == provisioner.EventServerShutdown {
			break
		}
	}
	if i >= 0 && events[i].Type == provisioner.EventServerShutdown {
		e.say("Its agent has ended at %s, and was not heard of since.", stamp(events[i].Time))
		e.do("start the agent on the machine, if that is to be in the fleet")
	}
}

func (e *explainer) explainOrder(o *order) {
	// Since both are told to the second, a quick node does it "at" the same time.
	var became string
	switch {
	case o.refused != "":
		became = "it was refused at " + stamp(o.ended) + ": " + string(o.refused)
	case !o.ended.IsZero():
		became = "done at " + stamp(o.ended)
	case o.taken:
		became = "it has taken the order, and was not heard to have done it"
		if e.now.Sub(o.at) >= slowToConfirm {
			e.do("run `muster server doctor` on the machine: it has an order that it has not carried out")
		}
	default:
		became = "it has not answered, and may not have taken the order"
		e.do("muster node %s %s: order it once more", o.verb, e.Identity)
	}
	e.say("%s ordered it at %s %s%s: %s.", o.by, stamp(o.at), orders[o.verb], because(o.why), became)
}

// maxVerdicts is how many keys with a verdict are explained, the last ones; chosen,
// few machines fight for one name.
const maxVerdicts = 5

// verdicts returns the verdicts in force about keys of id that events tell of, the
// last one first.
func (x *Index) verdicts(ctx context.Context, id wire.Identity, events []provisioner.Event) ([]*provisioner.Answer, error) {
	var keys []string
	for i := len(events) - 1; i >= 0 && len(keys) < maxVerdicts; i-- {
		switch e := &events[i]; e.Type {
		case provisioner.EventApproved, provisioner.EventRejected, provisioner.EventForgotten:
			if e.Key != "" && !slices.Contains(keys, e.Key) {
				keys = append(keys, e.Key)
			}
		}
	}
	var all []*provisioner.Answer
	for _, key := range keys {
		a, _, err := x.log.Answer(ctx, id, key)
		if err != nil {
			return nil, err
		}
		if a != nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// verdicts explains what operators have said of keys, r being nil if there is no
// record, and foreseen what comes of each approval that is open.
func (e *explainer) verdicts(r *provisioner.Record, verdicts []*provisioner.Answer, foreseen map[string]wire.Code) {
	var spent *provisioner.SpentApproval
	var keys []string // that are in
	if r != nil {
		spent = r.Approval
		for _, i := range []*provisioner.Issued{r.Current, r.Next} {
			if i != nil {
				keys = append(keys, i.KeyHash)
			}
		}
	}
	in := func(key string) bool {
		return (e.State == provisioner.StateEnrolled || e.State == provisioner.StateProvisioned) && slices.Contains(keys, key)
	}
	if spent != nil && in(spent.KeyHash) {
		why := ""
		if i := slices.IndexFunc(verdicts, func(a *provisioner.Answer) bool { return a.ID == spent.ID }); i >= 0 {
			why = because(verdicts[i].Why)
		}
		e.say("Its key was let in at %s with the approval of %s%s.", stamp(spent.At), spent.By, why)
	}
	for _, a := range verdicts {
		key := a.KeyHash[:shownKey]
		switch {
		case a.Verdict == provisioner.VerdictReject:
			e.say("The key %s was rejected at %s by %s%s: it stays out.", key, stamp(a.At), a.By, because(a.Why))
			e.do("muster node approve %s --key %s: let the rejected key in after all", e.Identity, key)
			e.do("muster node forget %s --key %s: have the rejected key wait again", e.Identity, key)
		case a.Verdict != provisioner.VerdictApprove, in(a.KeyHash), spent != nil && !a.At.After(spent.At):
			// Taken back, used, or given before another key came in.
		case a.Open(e.now):
			e.open(a, foreseen[a.ID])
		case e.now.Before(a.ExpiresAt):
			e.say("The key %s was approved at %s, which is to come, by %s%s, so a clock was ahead: that lets nobody in.", key, stamp(a.At), a.By, because(a.Why))
			e.do("muster node approve %s --key %s: approve it again", e.Identity, key)
		default:
			e.say("The key %s was approved at %s by %s%s, and did not come before that ended at %s.", key, stamp(a.At), a.By, because(a.Why), stamp(a.ExpiresAt))
			e.do("muster node approve %s --key %s: approve it again, once it waits", e.Identity, key)
		}
	}
}

// open explains an approval whose time is not over, by the code that its key is told next.
func (e *explainer) open(a *provisioner.Answer, next wire.Code) {
	key := a.KeyHash[:shownKey]
	said := fmt.Sprintf("The key %s was approved at %s by %s%s", key, stamp(a.At), a.By, because(a.Why))
	switch next {
	case "":
		e.say("%s: it gets in with its next try, until %s.", said, stamp(a.ExpiresAt))
	case wire.CodePaused:
		e.say("%s: it gets in with its next try once enrollment is resumed, until %s.", said, stamp(a.ExpiresAt))
	case wire.CodeApprovalPending:
		e.say("%s, for the machine that has lost the name since: that lets nobody in any more.", said)
		e.do("muster node approve %s --key %s: approve it again, once it waits", e.Identity, key)
	case wire.CodeIdentityTaken:
		e.say("%s, and the name belongs to another key: that lets nobody in.", said)
		e.do("muster node grant %s --key %s: let the approved key have the name instead", e.Identity, key)
	case wire.CodeIdentityRevoked:
		e.say("%s, and the name or the key is revoked: that lets nobody in.", said)
	default:
		e.say("%s. Whether it gets in cannot be said now: %s.", said, next)
	}
}

// shownKey is how many hex digits of a key's hash are shown: they tell keys apart,
// and verbs take them.
const shownKey = 16
