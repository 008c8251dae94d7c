package provisioner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"muster/provisioner/trust"
)

// Operators are those of the store, as this process knows them.
type Operators struct{ log Log[*OperatorEntry] }

// NewOperators returns the operators of a log.
func NewOperators(log Log[*OperatorEntry]) *Operators { return &Operators{log} }

// operatorOf returns the entry about an operator. One that cannot be read is a removal.
func operatorOf(key string, e Entry[*OperatorEntry]) *OperatorEntry {
	if e.Unread == nil {
		return e.Value
	}
	return &OperatorEntry{Schema: OperatorSchema, Name: key, Removed: true, By: trust.CauseUnread.By, Why: trust.CauseUnread.Why, At: e.At.UTC().Truncate(time.Second)}
}

// named returns the newest entry about a name, nil if there is none.
func (o *Operators) named(name string) *OperatorEntry {
	e, found := o.log.Get(name)
	if !found {
		return nil
	}
	return operatorOf(name, e)
}

// list returns all that is known, by name.
func (o *Operators) list() []OperatorInfo {
	list := []OperatorInfo{}
	for key, e := range o.log.All() {
		list = append(list, operatorOf(key, e).info())
	}
	slices.SortFunc(list, func(a, b OperatorInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// issuers returns the issuers of the certificates that are good at now, and how many each has.
func (o *Operators) issuers(now time.Time) map[string]int {
	by := make(map[string]int)
	for _, e := range o.log.All() {
		if e.Value != nil && !e.Value.Removed && e.Value.Serial != "" && now.Before(e.Value.Ends) {
			by[e.Value.Issuer]++
		}
	}
	return by
}

// put writes an entry. It gets its time here, which is after that of the newest about the name.
// A removal counts whatever was written before it. The error is [ErrState] if the operator was
// changed meanwhile.
func (o *Operators) put(ctx context.Context, e *OperatorEntry, now time.Time) error {
	return putTrust(ctx, o.log, e, e.Removed, func(before trustMoment) { e.At = before.next(now) })
}
