package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/policies"
)

// DefaultKeptFacts are the facts that are kept of every node: what system it is,
// what for, and where. They are few, since each record has them, and of kinds that
// many machines share, so that they take next to nothing in memory.
func DefaultKeptFacts() []string {
	return []string{"os.name", "os.release.full", "role", "environment", "datacenter", "rack"}
}

// MaxKeptFacts bounds how many facts are kept of each node; chosen. With
// [MaxFactBytes] a record grows by 3.2 kB at most, and by 100 bytes as a rule.
const MaxKeptFacts = 16

// CheckKeptFacts returns what is wrong with the names of facts to be kept.
func CheckKeptFacts(names []string) (errs []error) {
	if n := len(names); n > MaxKeptFacts {
		errs = append(errs, fmt.Errorf("%d facts to be kept of each node, limit %d", n, MaxKeptFacts))
	}
	for i, name := range names {
		switch {
		case !isFactName(name):
			errs = append(errs, fmt.Errorf("fact %.80q: want a name of 1 to %d letters, digits and _ - : / with dots between them", name, maxFactNameBytes))
		case policies.IsSecretName(name):
			errs = append(errs, fmt.Errorf("fact %q: is called as secrets are, and those are kept nowhere", name))
		case slices.Contains(names[:i], name):
			errs = append(errs, fmt.Errorf("fact %q: named twice", name))
		}
	}
	return errs
}

// isFactName reports whether a fact that is called so can be kept.
func isFactName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("_-:/.", c) < 0 {
			return false
		}
	}
	return len(name) <= maxFactNameBytes && !slices.Contains(strings.Split(name, "."), "")
}

// keptFacts returns what is kept of the attempt's facts.
func (p *Provisioner) keptFacts(a *attempt) Facts { return keptFacts(a.request.Facts, p.kept) }

// keepFacts writes the facts of a node that gets what it has, if they are others
// than those on record. It may be the last step: the node asks again, and with the
// same facts nothing is written. Facts are for operators: what the node gets is on record
// as it is, so a store without room for others is no reason to refuse it.
func (p *Provisioner) keepFacts(ctx context.Context, a *attempt) error {
	facts := p.keptFacts(a)
	if p.kept == nil || slices.Equal(facts, a.record.Facts) {
		return nil
	}
	next := *a.record
	next.Facts, next.Attempt, next.UpdatedAt = facts, a.id, p.now()
	next.keep(a.record, p.cfg.Clock.believed(next.UpdatedAt))
	err := a.watch.took(StepPublish, p.publish(ctx, &next, a.after, func() error { return p.trying(a) }))
	if errors.Is(err, ErrStoreFull) {
		return nil // nothing was written; they come with the node's next answer
	}
	return err
}

// keptFacts returns those of the facts that are looked for and can be kept: whole,
// or not at all, so that who filters by a value finds every node that says it. Left out are
// values of more than [MaxFactBytes], those of several lines, and secrets by their
// shape.
func keptFacts(facts json.RawMessage, find *factFinder) (kept Facts) {
	find.find(facts, func(name, value string) {
		if value == "" || len(value) > MaxFactBytes || !isOneLine(value) || policies.HasSecret(value) {
			return
		}
		if kept == nil {
			kept = make(Facts, 0, len(find.names))
		}
		kept = append(kept, Fact{name, value})
	})
	return kept
}

// isOneLine reports whether a text has no control characters.
func isOneLine(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) < 0
}
