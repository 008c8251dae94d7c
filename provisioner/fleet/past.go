package fleet

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
)

// A Kind says what happened to a node.
type Kind string

// The kinds of moments.
const (
	Presented Kind = "presented" // a token, by a machine at Source
	Decided   Kind = "decided"   // the policy let it in: Reason, Policy, Cause has its words, By is who has approved it
	Issued    Kind = "issued"    // a certificate: Serial, Digest of what it was offered with
	Renewed   Kind = "renewed"   // a certificate in place of a live one
	Offered   Kind = "offered"   // another configuration with the same certificate
	Applied   Kind = "applied"   // the node has both on disk, and said so
	Refused   Kind = "refused"   // Code, Cause, Remedy
	Attempted Kind = "attempted" // refused, with nothing proven: anybody may have used this name
	KeptOut   Kind = "kept_out"  // of the fleet, with the certificate Serial of its own: Code, Cause, Remedy
	Repeated  Kind = "repeated"  // it got its answer again
	Confirmed Kind = "confirmed" // it has said again that it has both on disk
	Approved  Kind = "approved"  // by an operator, or the command that approves: Key gets in
	Rejected  Kind = "rejected"  // by an operator: Key stays out
	Forgotten Kind = "forgotten" // by an operator: what was said of Key no longer counts
	Granted   Kind = "granted"   // by an operator: another key may have the name
	Commanded Kind = "commanded" // by an operator: Verb; with a Cause the node may not have taken it
	Revoked   Kind = "revoked"   // by an operator
	Retired   Kind = "retired"   // by an operator
	Cloned    Kind = "cloned"    // two live machines speak for it
	Connected Kind = "connected" // the agent has started, with the certificate Serial
	Alive     Kind = "alive"     // the agent said so last
	Stopped   Kind = "stopped"   // the agent has ended
)

// A Moment is something that happened to a node, from its record's revisions or
// from events. What does not apply is empty.
type Moment struct {
	At     time.Time          `json:"at"`
	Kind   Kind               `json:"kind"`
	Reason provisioner.Reason `json:"reason,omitempty"`
	Code   wire.Code          `json:"code,omitempty"`
	Cause  string             `json:"cause,omitempty"`
	Remedy string             `json:"remedy,omitempty"`
	Serial string             `json:"serial,omitempty"`
	Until  time.Time          `json:"until,omitzero"` // when the certificate ends
	Digest string             `json:"digest,omitempty"`
	Key    string             `json:"key_hash,omitempty"` // of a verdict
	Verb   wire.Verb          `json:"verb,omitempty"`     // of a command
	Policy string             `json:"policy,omitempty"`
	Token  jwt.TokenID        `json:"token_id,omitempty"`
	Source string             `json:"source,omitempty"`
	By     string             `json:"by,omitempty"`
	Why    string             `json:"why,omitempty"`

	// Times is how often the same happened with nothing else between, if more than
	// once, At being the first of them and Last the last.
	Times int       `json:"times,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	Revision trust.Revision `json:"revision,omitempty"` // of the record, 0 if it is from an event
}

// A Past is what is kept of a node's past, the oldest first.
type Past struct {
	Identity wire.Identity `json:"identity"`
	Moments  []Moment      `json:"moments"`

	// Complete is false if there was more: a record's 64 newest revisions are kept,
	// and events as long as there is room for them.
	Complete bool `json:"complete"`
}

// Past returns a node's past. The error is [provisioner.ErrNoRecord] if nothing is
// known under this name.
func (x *Inspector) Past(ctx context.Context, id wire.Identity) (*Past, error) {
	past, _, err := x.past(ctx, id)
	return past, err
}

// past is Past, with the events that it is made of.
func (x *Inspector) past(ctx context.Context, id wire.Identity) (*Past, []events.Event, error) {
	history, whole, err := x.log.History(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	events, all, err := x.log.NodeEvents(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if len(history) == 0 && len(events) == 0 {
		return nil, nil, fmt.Errorf("%q: %w: no request under this name has come, or none that is kept", id, provisioner.ErrNoRecord)
	}
	return &Past{Identity: id, Moments: moments(history, whole, events), Complete: whole && all}, events, nil
}

// moments puts a past together.
func moments(history []provisioner.Revised, whole bool, events []events.Event) []Moment {
	var all []Moment
	for i, r := range history {
		var before *provisioner.Record
		if i > 0 {
			before = history[i-1].Record
		} else if !whole {
			continue // what it has changed is not known
		}
		for _, m := range changes(before, r.Record) {
			m.Revision = r.Revision
			all = append(all, m)
		}
	}
	begins := time.Time{}
	if len(history) > 0 && !whole {
		begins = history[0].Record.UpdatedAt
	}
	for i := range events {
		if m, ok := momentOf(&events[i], begins); ok {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
	return together(all)
}

// changes says what happened between two revisions, before being nil for the first.
func changes(before, r *provisioner.Record) (all []Moment) {
	if before == nil {
		before = &provisioner.Record{State: provisioner.StateNone}
	}
	add := func(k Kind, m Moment) {
		m.At, m.Kind = r.UpdatedAt, k
		all = append(all, m)
	}
	if n := r.Next; n != nil && serialOf(before.Next) != n.Serial && serialOf(before.Current) != n.Serial {
		d := r.Decision
		decided := Moment{Reason: d.Reason, Policy: d.Policy, Cause: strings.Join(d.Notes, "; ")}
		if a := r.Approval; a != nil && (before.Approval == nil || before.Approval.ID != a.ID) {
			decided.By = a.By
		}
		issued := Moment{Serial: n.Serial, Until: n.NotAfter, Digest: n.Digest}
		if d.Reason == provisioner.ReasonRenew {
			decided.Serial, decided.Until, decided.Digest, decided.Source = issued.Serial, issued.Until, issued.Digest, r.Source
			add(Renewed, decided)
		} else {
			add(Presented, Moment{Token: r.Token, Source: r.Source})
			add(Decided, decided)
			add(Issued, issued)
		}
	} else if n != nil && n.Digest != digestOf(before.Next) {
		add(Offered, Moment{Serial: n.Serial, Digest: n.Digest, Policy: r.Decision.Policy})
	}
	if c := r.Current; c != nil && (serialOf(before.Current) != c.Serial || digestOf(before.Current) != c.Digest) {
		add(Applied, Moment{Serial: c.Serial, Until: c.NotAfter, Digest: c.Digest})
	}
	if r.Cloned != nil && before.Cloned == nil {
		add(Cloned, Moment{})
	}
	if r.State != before.State && r.Operator != nil {
		switch r.State {
		case provisioner.StateRevoked:
			add(Revoked, Moment{By: r.Operator.By, Why: r.Operator.Why})
		case provisioner.StateRetired:
			add(Retired, Moment{By: r.Operator.By, Why: r.Operator.Why})
		}
	}
	return all
}

func serialOf(i *provisioner.Issued) string {
	if i == nil {
		return ""
	}
	return i.Serial
}

func digestOf(i *provisioner.Issued) string {
	if i == nil {
		return ""
	}
	return i.Digest
}

// recorded are the events of what the record's revisions say as well.
var recorded = map[events.Type]Kind{
	events.Enrolled: Issued, events.Renewed: Renewed, events.Provisioned: Applied,
	events.Revoked: Revoked, events.Retired: Retired, events.Cloned: Cloned,
}

// told are the events that only events tell.
var told = map[events.Type]Kind{
	events.Refused: Refused, events.Attempt: Attempted, events.Granted: Granted,
	events.Approved: Approved, events.Rejected: Rejected, events.Forgotten: Forgotten, events.Commanded: Commanded,
	"io.muster.server.startup": Connected, "io.muster.server.alive": Alive, "io.muster.server.shutdown": Stopped,
}

// momentOf returns what an event adds to revisions that are kept since begins, the
// zero time for all.
func momentOf(e *events.Event, begins time.Time) (Moment, bool) {
	kind, ok := told[e.Type]
	if !ok {
		kind, ok = recorded[e.Type]
		switch {
		case !ok:
			return Moment{}, false
		case e.Repeated && e.Type == events.Provisioned:
			kind = Confirmed
		case e.Repeated:
			kind = Repeated
		case !e.Time.Before(begins):
			return Moment{}, false
		}
	}
	source := e.Source
	if kind == Attempted && e.Serial != "" {
		kind = KeptOut
		if host, _, err := net.SplitHostPort(source); err == nil {
			source = host // it comes by another port each time, and that is one moment
		}
	}
	m := Moment{
		At: e.Time, Kind: kind, Reason: provisioner.Reason(e.Reason), Code: e.Code, Cause: e.Cause, Serial: e.Serial, Digest: e.Digest, Policy: e.Policy,
		Token: e.Token, Source: source, By: e.By, Why: e.Why, Key: e.Key, Verb: e.Verb,
	}
	if m.Code != "" {
		m.Remedy = wire.MeaningOf(m.Code).Remedy
	}
	return m, true
}

// together makes one of moments that differ in their time only and follow one
// another.
func together(all []Moment) []Moment {
	var out []Moment
	for _, m := range all {
		if n := len(out) - 1; n >= 0 && same(out[n], m) {
			out[n].Times, out[n].Last = max(out[n].Times, 1)+1, m.At
			continue
		}
		out = append(out, m)
	}
	return out
}

// same reports whether the same has happened twice, but for who asked from where.
func same(a, b Moment) bool {
	return a.Revision == 0 && b.Revision == 0 && a.Kind == b.Kind && a.Code == b.Code && a.Cause == b.Cause && a.Serial == b.Serial &&
		a.Source == b.Source && a.By == b.By && a.Why == b.Why && a.Token == b.Token && a.Key == b.Key && a.Verb == b.Verb && a.Digest == b.Digest
}
