package provisioner

import (
	"context"
	"errors"
	"slices"

	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// keptFacts returns what is kept of the attempt's facts.
func (a *proof) keptFacts() facts.Facts { return a.kept.Kept(a.request.Facts) }

// keepFacts writes the facts of a node that gets what it has, if they are others
// than those on record. It may be the last step: the node asks again, and with the
// same facts nothing is written. Facts are for operators: what the node gets is on record
// as it is, so a store without room for others is no reason to refuse it.
func (a *attempt) keepFacts(ctx context.Context) error {
	facts := a.keptFacts()
	if a.kept == nil || slices.Equal(facts, a.record.Facts) {
		return nil
	}
	next := *a.record
	next.Facts, next.Attempt, next.UpdatedAt = facts, a.id, a.now()
	next.keep(a.record, next.UpdatedAt)
	err := a.watch.took(StepPublish, a.records.publish(ctx, &next, a.after, func() error { return a.trying() }))
	if errors.Is(err, trust.ErrStoreFull) {
		return nil // nothing was written; they come with the node's next answer
	}
	return err
}
