package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// A Kind is a kind of history item.
type Kind string

// The kinds, each with the members of [HistoryItem] that it has.
const (
	Presented Kind = "presented"     // a token, from Source
	Decided   Kind = "decided"       // by the policy: Reason, Policy, notes as Cause; By approved or granted, with Why
	Issued    Kind = "issued"        // a certificate: Serial, Digest of the configuration
	Renewed   Kind = "renewed"       // a certificate by renewal
	Offered   Kind = "offered"       // another configuration for the same certificate
	Applied   Kind = "applied"       // the node has confirmed certificate and configuration
	Refused   Kind = "refused"       // Code, Cause, Remedy
	Attempted Kind = "attempted"     // unauthenticated request refused
	KeptOut   Kind = "kept_out"      // refused by the fleet with certificate Serial: Code, Cause, Remedy
	Repeated  Kind = "repeated"      // a repeated request got the same certificate
	Confirmed Kind = "confirmed"     // confirmed again
	Approved  Kind = "approved"      // by an operator: Key
	Rejected  Kind = "rejected"      // by an operator: Key
	Forgotten Kind = "forgotten"     // by an operator: the verdict on Key was lifted
	Granted   Kind = "granted"       // by an operator: the name may go to another key
	Commanded Kind = "commanded"     // by an operator: Verb; with a Cause the node may not have received the command
	Revoked   Kind = "revoked"       // by an operator
	Retired   Kind = "retired"       // by an operator
	Cloned    Kind = "cloned"        // two live machines use its key
	Faulty    Kind = "fault"         // the node reports a Cause that keeps it from renewing; without one it has ended
	RunBroken Kind = "run_failed"    // a run of the node's Puppet agent: Cause
	RunWorks  Kind = "run_recovered" // the first run after it that did not fail
	Connected Kind = "connected"     // the agent has started, with certificate Serial
	Alive     Kind = "alive"         // newest report of the agent
	Stopped   Kind = "stopped"       // the agent has ended

	Served   Kind = "certificate_issued"   // service certificate Name: Serial
	Unserved Kind = "certificate_failed"   // service certificate Name was refused: Code, Cause
	Ended    Kind = "certificate_revoked"  // service certificate Name, or all of them
	Named    Kind = "certificate_approved" // by an operator: a request for service certificate Name
	Unnamed  Kind = "certificate_rejected" // by an operator: such a request
)

// A HistoryItem is an item of a node's history, from a revision of the record or from an event. Members that do not
// apply are empty.
type HistoryItem struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`

	// Event lacks type, time, node and attempt.
	events.Event

	Remedy string    `json:"remedy,omitempty"`
	Until  time.Time `json:"until,omitzero"` // end of the certificate

	// Times counts equal items in a row, 0 for a single one. At is the time of the first, Last of the last.
	Times int       `json:"times,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	Revision trust.Revision `json:"revision,omitempty"` // of the record; 0: the item is from an event
}

// A History is a node's history, oldest first.
type History struct {
	Identity wire.Identity `json:"identity"`
	Items    []HistoryItem `json:"moments"`

	// Complete is false if older items are lost: the store keeps 64 revisions of a record, and events while there is
	// space.
	Complete bool `json:"complete"`
}

// History returns a node's history. The error is [provisioner.ErrNoRecord] if nothing is known under this name.
func (x *Inspector) History(ctx context.Context, id wire.Identity) (*History, error) {
	past, _, err := x.past(ctx, id)
	return past, err
}

// past returns the history, and the events that it was made from.
func (x *Inspector) past(ctx context.Context, id wire.Identity) (*History, []events.Event, error) {
	history, whole, err := x.log.History(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	events, all, err := x.log.NodeEvents(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if len(history) == 0 && len(events) == 0 {
		return nil, nil, fmt.Errorf("%q: %w: no request or event with this name is known", id, provisioner.ErrNoRecord)
	}
	return &History{Identity: id, Items: historyItems(history, whole, events), Complete: whole && all}, events, nil
}

func historyItems(history []provisioner.Revised, whole bool, events []events.Event) []HistoryItem {
	var all []HistoryItem
	for i, r := range history {
		var before *provisioner.Record
		if i > 0 {
			before = history[i-1].Record
		} else if !whole {
			continue // without the previous revision, the change is not known
		}
		spent := r.Record.Grant != "" && (before == nil || r.Record.Grant != before.Grant)
		for _, m := range changes(before, r.Record) {
			if m.Revision = r.Revision; spent && m.Kind == Decided {
				m.By, m.Why = grantedBy(events, m.At)
			}
			all = append(all, m)
		}
	}
	begins := time.Time{}
	if len(history) > 0 && !whole {
		begins = history[0].Record.UpdatedAt
	}
	for i := range events {
		if m, ok := itemOf(&events[i], begins); ok {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b HistoryItem) int { return a.At.Compare(b.At) })
	return mergeRepeats(all)
}

// grantedBy returns the operator of the newest grant at a time, which is to the second.
func grantedBy(all []events.Event, at time.Time) (by, why string) {
	var newest time.Time
	for i := range all {
		e := &all[i]
		if e.Type == events.Granted && !e.Time.Truncate(time.Second).After(at) && e.Time.After(newest) {
			newest, by, why = e.Time, e.By, e.Why
		}
	}
	return by, why
}

// changes returns the items for the change from one revision to the next. before is nil for the first revision.
func changes(before, r *provisioner.Record) (all []HistoryItem) {
	before = cmp.Or(before, &provisioner.Record{State: provisioner.StateNone})
	add := func(k Kind, e events.Event, until time.Time) {
		all = append(all, HistoryItem{At: r.UpdatedAt, Kind: k, Event: e, Until: until})
	}
	none := &provisioner.Issued{}
	next, current := cmp.Or(before.Next, none), cmp.Or(before.Current, none)
	if n := r.Next; n != nil && next.Serial != n.Serial && current.Serial != n.Serial {
		d := r.Decision
		decided := events.Event{Reason: string(d.Reason), Policy: d.Policy, Cause: strings.Join(d.Notes, "; ")}
		if a := r.Approval; a != nil && (before.Approval == nil || before.Approval.ID != a.ID) {
			decided.By = a.By
		}
		if d.Reason == provisioner.ReasonRenew {
			decided.Serial, decided.Digest, decided.Source = n.Serial, n.Digest, r.Source
			add(Renewed, decided, n.NotAfter)
		} else {
			add(Presented, events.Event{Token: r.Token, Source: r.Source}, time.Time{})
			add(Decided, decided, time.Time{})
			add(Issued, events.Event{Serial: n.Serial, Digest: n.Digest}, n.NotAfter)
		}
	} else if n != nil && n.Digest != next.Digest {
		add(Offered, events.Event{Serial: n.Serial, Digest: n.Digest, Policy: r.Decision.Policy}, time.Time{})
	}
	if c := r.Current; c != nil && (current.Serial != c.Serial || current.Digest != c.Digest) {
		add(Applied, events.Event{Serial: c.Serial, Digest: c.Digest}, c.NotAfter)
	}
	if r.Cloned != nil && before.Cloned == nil {
		add(Cloned, events.Event{Cause: r.Cloned.Text()}, time.Time{})
	}
	if fault := r.Fault.Text(); fault != before.Fault.Text() {
		add(Faulty, events.Event{Cause: fault}, time.Time{})
	}
	ended := map[provisioner.State]Kind{provisioner.StateRevoked: Revoked, provisioner.StateRetired: Retired}[r.State]
	if ended != "" && (r.State != before.State || r.Awaiting != before.Awaiting) && r.Operator != nil {
		e := events.Event{By: r.Operator.By, Why: r.Operator.Why}
		if r.Awaiting {
			e.Cause = "the name is kept for a one-time token, a grant or an approval"
		}
		add(ended, e, time.Time{})
	}
	return all
}

// recordKinds are the kinds of events that revisions of the record show too.
var recordKinds = map[events.Type]Kind{
	events.Enrolled: Issued, events.Renewed: Renewed, events.Provisioned: Applied,
	events.Revoked: Revoked, events.Retired: Retired, events.Cloned: Cloned,
	events.Faulty: Faulty, events.FaultEnded: Faulty,
}

// eventKinds are the kinds of events that no record shows.
var eventKinds = map[events.Type]Kind{
	events.Refused: Refused, events.Attempt: Attempted, events.Granted: Granted,
	events.Approved: Approved, events.Rejected: Rejected, events.Forgotten: Forgotten, events.Commanded: Commanded,
	events.RunFailed: RunBroken, events.RunRecovered: RunWorks,
	events.CertificateIssued: Served, events.CertificateFailed: Unserved, events.CertificateRevoked: Ended,
	events.CertificateApproved: Named, events.CertificateRejected: Unnamed,
	"io.muster.server.startup": Connected, "io.muster.server.alive": Alive, "io.muster.server.shutdown": Stopped,
}

// itemOf returns the item of an event, and false if a revision shows it: those are kept since begins.
func itemOf(e *events.Event, begins time.Time) (HistoryItem, bool) {
	kind, ok := eventKinds[e.Type]
	if !ok {
		kind, ok = recordKinds[e.Type]
		switch {
		case !ok:
			return HistoryItem{}, false
		case e.Repeated && e.Type == events.Provisioned:
			kind = Confirmed
		case e.Repeated:
			kind = Repeated
		case !e.Time.Before(begins):
			return HistoryItem{}, false
		}
	}
	m := HistoryItem{At: e.Time, Kind: kind, Event: *e}
	m.Type, m.Time, m.Node, m.Attempt, m.Command, m.Elapsed, m.LeftOut = "", time.Time{}, "", "", "", 0, 0
	if kind == Attempted && e.Serial != "" {
		m.Kind = KeptOut
		if host, _, err := net.SplitHostPort(e.Source); err == nil {
			m.Source = host // without the port, so that repetitions are one item
		}
	}
	if m.Code != "" {
		m.Remedy = wire.MeaningOf(m.Code).Remedy
	}
	return m, true
}

func mergeRepeats(all []HistoryItem) []HistoryItem {
	var out []HistoryItem
	for _, m := range all {
		if n := len(out) - 1; n >= 0 && same(out[n], m) {
			out[n].Times, out[n].Last = max(out[n].Times, 1)+1, m.At
			continue
		}
		out = append(out, m)
	}
	return out
}

// same compares items without their times.
func same(a, b HistoryItem) bool {
	return a.Revision == 0 && b.Revision == 0 && a.Kind == b.Kind && a.Event == b.Event
}
