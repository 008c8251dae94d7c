package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/provisioner/orders"

	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// A Listed is an entry of a list that is imported.
type Listed struct {
	Pattern   wire.Pattern `json:"pattern" yaml:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero" yaml:"expires"` // zero: never
	Comment   string       `json:"comment,omitempty" yaml:"comment"`   // in place of the import's reason
}

// A List is all that one source wants in the allow-list.
type List struct {
	Source     string   `json:"source"`
	Entries    []Listed `json:"entries"`
	Everything bool     `json:"everything,omitempty"` // a pattern that covers every name is meant
}

// Imported is what an import has changed, or would change.
type Imported struct {
	Added     []wire.Pattern `json:"added,omitempty"`
	Changed   []wire.Pattern `json:"changed,omitempty"`
	Ended     []wire.Pattern `json:"ended,omitempty"`
	Unchanged int            `json:"unchanged"`

	// Kept are patterns of the list that stay as they are, since they are in force by an operator's entry or by another
	// source's.
	Kept []wire.Pattern `json:"kept,omitempty"`
}

// importWriters is how many entries of an import are written at a time. The store takes one after the other; more of
// them hide the round trips to a cluster.
const importWriters = 16

// Import brings the entries of a source to what its list says: those that it lacks are added or changed, all others of
// that source end. Entries of operators and of other sources stay. Each change is one write under compare-and-set, so
// that an import that was cut off, or met another change, is finished by importing again. Entries that have expired
// count as missing from the list. With dryRun nothing is written.
func (l *AllowList) Import(ctx context.Context, list List, dryRun bool, c trust.Cause) (_ *Imported, err error) {
	defer about(&err, "import the allow-list of %.80q", list.Source)
	if err := wrong(list.check(c), c.Check()); err != nil {
		return nil, err
	}
	if err := l.provisioner.Fresh(); err != nil {
		return nil, err
	}
	writes, result := l.plan(list, c)
	if dryRun {
		return result, nil
	}
	g, unfailed := errgroup.WithContext(ctx)
	g.SetLimit(importWriters)
	for _, w := range writes {
		if unfailed.Err() != nil {
			break // what has begun is finished: a write that is cut off may be made later
		}
		g.Go(func() error {
			err := l.put(ctx, w.entry, func(key string) error {
				_, err := l.logs.Allowances.Put(ctx, key, w.entry, w.after)
				return changedMeanwhile(err)
			})
			if err != nil {
				return fmt.Errorf("entry %q: %w", w.entry.Pattern, err)
			}
			return nil
		})
	}
	err = g.Wait()
	l.provisioner.AllowListChanged(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; importing it again finishes this", err)
	}
	return result, nil
}

// check reports everything wrong with the list that is imported for a cause.
func (l *List) check(c trust.Cause) error {
	errs := []error{orders.CheckAllowSource(l.Source)}
	seen := make(map[wire.Pattern]bool, len(l.Entries))
	for i, e := range l.Entries {
		_, err := wire.ParsePattern(string(e.Pattern))
		switch c.Why = e.Comment; {
		case err != nil:
		case orders.AnyName(e.Pattern) && !l.Everything:
			err = fmt.Errorf("%q: %w", e.Pattern, ErrEverything)
		case seen[e.Pattern]:
			err = fmt.Errorf("%q is there twice", e.Pattern)
		default:
			err = c.Check()
		}
		seen[e.Pattern] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// An allowWrite is an entry to write, and the revision that it replaces.
type allowWrite struct {
	entry *orders.Allowance
	after trust.Revision
}

// plan returns what an import writes, ends first, and what that changes.
func (l *AllowList) plan(list List, c trust.Cause) (writes []allowWrite, result *Imported) {
	result = &Imported{}
	now := l.now()
	wanted := make(map[wire.Pattern]bool, len(list.Entries))
	for _, e := range list.Entries {
		wanted[e.Pattern] = e.ExpiresAt.IsZero() || now.Before(e.ExpiresAt)
	}
	write := func(after trust.Revision, pattern wire.Pattern, change func(*orders.Allowance)) {
		a := l.entry(pattern, c)
		a.Source = list.Source
		change(a)
		writes = append(writes, allowWrite{a, after})
	}
	for _, newest := range l.logs.Allowances.All() {
		if a := newest.Value; a != nil && !a.Removed && a.Source == list.Source && !wanted[a.Pattern] {
			write(newest.Revision, a.Pattern, func(a *orders.Allowance) { a.Removed = true })
			result.Ended = append(result.Ended, a.Pattern)
		}
	}
	slices.Sort(result.Ended)
	for _, e := range list.Entries {
		if !wanted[e.Pattern] {
			continue
		}
		newest, _ := l.logs.Allowances.Get(orders.AllowanceID(e.Pattern))
		a := newest.Value
		switch {
		case a == nil || a.Removed || a.Over(now) && a.Source != list.Source:
			result.Added = append(result.Added, e.Pattern)
		case a.Source != list.Source:
			result.Kept = append(result.Kept, e.Pattern)
			continue
		case a.ExpiresAt.Equal(e.ExpiresAt) && (e.Comment == "" || e.Comment == a.Why):
			result.Unchanged++
			continue
		default:
			result.Changed = append(result.Changed, e.Pattern)
		}
		write(newest.Revision, e.Pattern, func(a *orders.Allowance) {
			a.ExpiresAt, a.Why = e.ExpiresAt.UTC(), cmp.Or(e.Comment, a.Why)
		})
	}
	return writes, result
}
