package provisioner

import (
	"context"
	"errors"
	"slices"

	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// keptFacts returns the facts for the record. Those before stay if the node could not send any.
func (a *attempt) keptFacts() facts.Facts {
	if a.request.FactsError != "" && len(a.request.Facts) == 0 && a.record != nil && !a.reason.changesHands() {
		return a.record.Facts
	}
	return a.kept.Kept(a.request.Facts)
}

// Neither a crash nor a full store matters: the next request tries again.
func (a *attempt) updateFacts(ctx context.Context) error {
	facts := a.keptFacts()
	if a.kept == nil || slices.Equal(facts, a.record.Facts) {
		return nil
	}
	next := *a.record
	next.Facts, next.Attempt, next.UpdatedAt = facts, a.id, a.now()
	next.keepSuperseded(a.record, next.UpdatedAt)
	err := a.publish(ctx, &next)
	if errors.Is(err, trust.ErrStoreFull) {
		return nil
	}
	return err
}
