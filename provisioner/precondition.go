package provisioner

import (
	"fmt"
	"time"

	"muster/provisioner/trust"
)

// ErrChanged means that the node has changed since the operator saw it. It wraps [trust.ErrState].
var ErrChanged = fmt.Errorf("%w: changed since it was shown", trust.ErrState)

// A Precondition is the state of a record that an order requires. A zero member sets no condition.
type Precondition struct {
	Revision   trust.Revision `json:"revision,omitempty"`   // of the record
	OwnedSince time.Time      `json:"owned_since,omitzero"` // [Record.OwnedSince], compared by the second
}

// Check returns [ErrChanged] if the newest record, or nil, does not meet the precondition.
func (s Precondition) Check(r *Record, at trust.Revision) error {
	switch {
	case s == Precondition{}:
		return nil
	case r == nil:
		return fmt.Errorf("%w: there is no record", ErrChanged)
	case !s.OwnedSince.IsZero() && r.OwnedSince.Unix() != s.OwnedSince.Unix():
		return fmt.Errorf("%w: another machine has had the name since %s", ErrChanged,
			r.OwnedSince.UTC().Format(time.RFC3339))
	case s.Revision != 0 && s.Revision != at:
		return fmt.Errorf("%w: the record was written at %s", ErrChanged, r.UpdatedAt.UTC().Format(time.RFC3339))
	}
	return nil
}
