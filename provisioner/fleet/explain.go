package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// slowToConfirm is when a node that was offered a certificate should have
// confirmed it: it takes seconds, and is tried again within a minute.
const slowToConfirm = 5 * time.Minute

// maxRefusals is how many of the last refusals are explained; chosen, they repeat.
const maxRefusals = 5

// An Explanation says in words how a node stands, and what an operator can do.
type Explanation struct {
	Identity wire.Identity     `json:"identity"`
	State    provisioner.State `json:"state"`
	Says     []string          `json:"says"`               // sentences
	Refusals []Moment          `json:"refusals,omitempty"` // the last ones since it was last let in, the newest first
	Do       []string          `json:"do"`                 // what an operator can do now, empty if nothing is to be done
}

// A Report is all that is on record of a node.
type Report struct {
	Record   *provisioner.Record  `json:"record"` // without the key that proves commands to the node
	Revision provisioner.Revision `json:"revision"`
	Grant    *provisioner.Grant   `json:"grant,omitempty"` // the newest, used or not
	Seen     time.Time            `json:"seen,omitzero"`   // see [Node]

	// GrantOver is that the grant, whose time is not over, lets nobody in any more, since the
	// machine that it was given against has lost the name: see [provisioner.Grant.Stands].
	GrantOver bool `json:"grant_over,omitempty"`

	// GrantToCome is that the grant is of a time to come, since a clock was ahead: it lets
	// nobody in, see [provisioner.Grant.Open].
	GrantToCome bool `json:"grant_to_come,omitempty"`
}

// Granted is the grant if it waits for its key, nil if there is none or if it was used.
func (r *Report) Granted() *provisioner.Grant {
	if r.Grant == nil || r.Grant.ID == r.Record.Grant {
		return nil
	}
	return r.Grant
}

// Report returns what is on record of a node at now. The error is
// [provisioner.ErrNoRecord] if nothing is.
func (x *Index) Report(ctx context.Context, id wire.Identity, now time.Time) (*Report, error) {
	record, revision, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, fmt.Errorf("%q: %w: `muster node explain` says whether it has tried", id, provisioner.ErrNoRecord)
	}
	grant, _, err := x.log.Grant(ctx, id)
	if err != nil {
		return nil, err
	}
	shown := *record
	shown.CommandKey = nil // who may look is not who may command
	node, _ := x.Find(id)  // zero if the index is not there yet
	return &Report{Record: &shown, Revision: revision, Grant: grant, Seen: node.Seen, GrantOver: over(grant, record, now), GrantToCome: toCome(grant, now)}, nil
}

// over reports whether a grant, which may be nil, would be open, not spent and no use: the
// machine that it was given against has not the name of r any more.
func over(g *provisioner.Grant, r *provisioner.Record, now time.Time) bool {
	return g != nil && g.Open(now) && (r == nil || r.Grant != g.ID) && !g.Stands(r, now)
}

// toCome reports whether a grant, which may be nil, is of a time to come: it is not open, and
// not over either.
func toCome(g *provisioner.Grant, now time.Time) bool {
	return g != nil && now.Before(g.ExpiresAt) && !g.Open(now)
}

// ErrHeard means that a node was heard of since then, or that nobody knows.
var ErrHeard = errors.New("not known to be away")

// Unheard returns [ErrHeard] if a node was heard of since then, or nobody knows, and
// [ErrReading] while it is being read when nodes were heard of.
func (x *Index) Unheard(ctx context.Context, id wire.Identity, since time.Time) error {
	select {
	case <-x.heard:
	case <-ctx.Done():
		return ErrReading
	}
	record, _, err := x.log.Record(ctx, id)
	if err != nil {
		return err
	}
	var e entry
	if record != nil {
		e = entry{state: number(states, record.State), first: record.FirstEnrolledAt.UnixNano(), updated: record.UpdatedAt.UnixNano()}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if seen := x.find(id); seen != nil {
		e.seen = seen.seen
	}
	switch last := instant(e.lastSeen(), 0); {
	case !last.Before(since):
		return fmt.Errorf("%w: it was heard of at %s", ErrHeard, last.Format(time.RFC3339))
	case !since.After(x.since):
		return fmt.Errorf("%w: nobody knows whether it was heard of before %s, when the store began to keep that", ErrHeard, x.since.Format(time.RFC3339))
	}
	return nil
}

// A Foresee says what the key of an open approval is told when it asks next: see
// [provisioner.Provisioner.Foresee].
type Foresee func(context.Context, *provisioner.Answer, *provisioner.Record, *provisioner.Grant) wire.Code

// Explain says how a node stands at now, and what comes of approvals as foresee has it. The
// error is [provisioner.ErrNoRecord] if nothing is known under this name.
func (x *Index) Explain(ctx context.Context, id wire.Identity, now time.Time, foresee Foresee) (*Explanation, error) {
	record, _, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	grant, _, err := x.log.Grant(ctx, id)
	if err != nil {
		return nil, err
	}
	past, events, err := x.past(ctx, id)
	if err != nil {
		return nil, err
	}
	verdicts, err := x.verdicts(ctx, id, events)
	if err != nil {
		return nil, err
	}
	node, _ := x.Find(id)
	read := &found{id, record, grant, past, events, verdicts, node.Seen, make(map[string]wire.Code)}
	for _, a := range verdicts {
		if a.Verdict == provisioner.VerdictApprove && a.Open(now) {
			read.foreseen[a.ID] = foresee(ctx, a, record, grant)
		}
	}
	return explain(read, now), nil
}

// found is what is read to explain a node.
type found struct {
	id       wire.Identity
	record   *provisioner.Record // nil if there is none
	grant    *provisioner.Grant  // nil if there is none
	past     *Past
	events   []provisioner.Event // that past is made of, the oldest first
	verdicts []*provisioner.Answer
	seen     time.Time
	foreseen map[string]wire.Code // by the id of each approval that is open
}

// An explainer puts an explanation together.
type explainer struct {
	*Explanation
	now time.Time
}

func (e *explainer) say(format string, args ...any) {
	e.Says = append(e.Says, fmt.Sprintf(format, args...))
}
func (e *explainer) do(format string, args ...any) { e.Do = append(e.Do, fmt.Sprintf(format, args...)) }

// explain explains what was read.
func explain(read *found, now time.Time) *Explanation {
	id, r, grant := read.id, read.record, read.grant
	e := &explainer{&Explanation{Identity: id, State: provisioner.StateNone, Do: []string{}}, now}
	if r != nil {
		e.State = r.State
	}
	e.Refusals = lastRefusals(read.past.Moments)
	switch e.State {
	case provisioner.StateEnrolled:
		e.enrolled(r)
		e.order(read.events)
	case provisioner.StateProvisioned:
		e.provisioned(r, read.seen)
		e.order(read.events)
	case provisioner.StateRevoked:
		e.say("It is kept out: revoked%s.", ordered(r))
		e.do("muster node retire %s: it may enroll again, as a new machine", id)
	case provisioner.StateRetired:
		e.say("Its name is free: retired%s. The next machine that comes with it is treated as new.", ordered(r))
	default:
		e.unrecorded()
	}
	e.verdicts(r, read.verdicts, read.foreseen)
	if r != nil && r.Cloned != nil {
		e.say("Two live machines use its key; that was noticed at %s.", stamp(r.Cloned.At))
		e.do("find the copy, then muster node retire %s, so that one of them may enroll anew", id)
	}
	if grant != nil && now.Before(grant.ExpiresAt) && (r == nil || r.Grant != grant.ID) {
		switch {
		case toCome(grant, now):
			e.say("A grant by %s is of %s, which is to come, so a clock was ahead: it lets nobody in.", grant.By, stamp(grant.At))
			e.do("muster node grant %s: give it again", id)
		case over(grant, r, now):
			e.say("The grant by %s of %s%s lets nobody in any more: the machine that it was given against has lost the name since.", grant.By, stamp(grant.At), because(grant.Why))
		default:
			e.say("Another key may take the name over, once, until %s: granted by %s%s.", stamp(grant.ExpiresAt), grant.By, because(grant.Why))
		}
	}
	e.refusals()
	return e.Explanation
}

// unrecorded explains a node without a record.
func (e *explainer) unrecorded() {
	i := slices.IndexFunc(e.Refusals, func(m Moment) bool { return m.Kind == KeptOut })
	if i < 0 {
		e.say("It has never been enrolled.")
		return
	}
	e.say("Certificate %s was issued to it, and is on no record: the store is one of before, as when a backup was restored.", e.Refusals[i].Serial)
	e.do("wait: once brokers have refused it for ten minutes it enrolls again by itself, if its token is still good")
}

// enrolled explains a node that has not confirmed its first certificate.
func (e *explainer) enrolled(r *provisioner.Record) {
	e.say("It was let in at %s (%s) and given certificate %s, and has not confirmed it yet.", stamp(r.Next.OfferedAt), ground(r), r.Next.Serial)
	switch {
	case !e.now.Before(r.Next.NotAfter):
		e.say("That certificate has ended at %s; the same key gets another one when it asks.", stamp(r.Next.NotAfter))
	case len(e.Refusals) > 0 && e.Refusals[0].Code == wire.CodeOfferUnusable:
		return // it has said what keeps it
	case e.now.Sub(r.Next.OfferedAt) < slowToConfirm:
		e.do("wait: a machine confirms within seconds, and tries again for as long as it takes")
		return
	}
	e.do("run `muster server doctor` on the machine: it could not write its files, was given a configuration that it cannot use, or has lost its connection")
	e.do("muster node retire %s: the machine is gone", e.Identity)
}

// provisioned explains a node that is part of the fleet.
func (e *explainer) provisioned(r *provisioner.Record, seen time.Time) {
	e.say("It is part of the fleet (%s), with certificate %s until %s.", ground(r), r.Current.Serial, stamp(r.Current.NotAfter))
	if !seen.IsZero() {
		e.say("It was last heard of at %s.", stamp(seen))
	}
	if !e.now.Before(r.Current.NotAfter) {
		e.say("That certificate has ended: it was not renewed in time. The machine enrolls again with its own key when it comes back.")
		e.do("run `muster server doctor` on the machine")
	}
	if n := r.Next; n != nil && n.Serial != r.Current.Serial {
		e.say("It was offered certificate %s at %s, and has not confirmed it yet.", n.Serial, stamp(n.OfferedAt))
	}
	e.do("muster node revoke %s: keep it out, for good", e.Identity)
	e.do("muster node grant %s: the machine was reinstalled and comes with another key", e.Identity)
	e.do("muster node retire %s: the machine is gone", e.Identity)
}

// refusals explains the last refusals, the newest first. The same remedy is given
// once.
func (e *explainer) refusals() {
	if len(e.Refusals) == 0 {
		return
	}
	last := e.Refusals[0]
	what := "A machine under this name"
	switch last.Kind {
	case Attempted:
		what = "Somebody who has proven nothing, and uses this name,"
	case KeptOut:
		what = "Who has its certificate " + last.Serial
	}
	since := ""
	if e.State != provisioner.StateNone {
		since = " since"
	}
	if last.Code == wire.CodeOfferUnusable {
		e.say("It has said, last at %s, that it cannot use what it was offered: %s.", stamp(lastOf(last)), last.Cause)
	} else {
		e.say("%s was refused%s, last at %s: %s.", what, since, stamp(lastOf(last)), last.Code)
	}
	said := make(map[string]bool)
	for _, m := range e.Refusals {
		if !said[m.Remedy] {
			said[m.Remedy] = true
			e.do("%s: %s", m.Code, m.Remedy)
		}
	}
}

// lastRefusals returns the refusals since a node was last let in, the newest
// first, and of each kind and code only the newest. Who has confirmed again uses what it
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
	provisioner.ReasonNew: "as a new machine", provisioner.ReasonReplay: "with the key that it had", provisioner.ReasonContinue: "with a key that it had before",
	provisioner.ReasonContinuity: "by continuity of its key", provisioner.ReasonGrant: "by an operator's grant", provisioner.ReasonRenew: "by renewal",
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

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
