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

// A Listed is an entry of an imported list.
type Listed struct {
	Pattern   wire.Pattern `json:"pattern" yaml:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero" yaml:"expires"` // zero: never
	Comment   string       `json:"comment,omitempty" yaml:"comment"`   // default: the reason of the import

	WithoutToken bool `json:"without_token,omitempty" yaml:"without_token"`
}

// A List is everything that one source allows.
type List struct {
	Source     string   `json:"source"`
	Entries    []Listed `json:"entries"`
	Everything bool     `json:"everything,omitempty"` // allows a pattern that covers every name
}

// Imported is the result of an import or a dry run.
type Imported struct {
	Added     []wire.Pattern `json:"added,omitempty"`
	Changed   []wire.Pattern `json:"changed,omitempty"`
	Ended     []wire.Pattern `json:"ended,omitempty"`
	Unchanged int            `json:"unchanged"`

	// Kept are patterns that stay as they are: another source or an operator has put them in force.
	Kept []wire.Pattern `json:"kept,omitempty"`
}

// importWriters overlap the round trips to a cluster: the store itself writes in sequence.
const importWriters = 16

// Import makes the entries of a source those of its list. Entries that the list lacks, or has as expired, end. Entries
// of other sources stay. Importing again completes an interrupted import.
func (l *AllowList) Import(ctx context.Context, list List, dryRun bool, c trust.Cause) (_ *Imported, err error) {
	defer about(&err, "import the allow-list of %.80q", list.Source)
	if err := wrong(list.check(c, l.judge), c.Check()); err != nil {
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
			break // wait for running writes: a canceled write may still succeed
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
		return nil, fmt.Errorf("%w; import it again to finish", err)
	}
	return result, nil
}

func (l *List) check(c trust.Cause, judge func(wire.Identity) error) error {
	errs := []error{orders.CheckAllowSource(l.Source)}
	seen := make(map[wire.Pattern]bool, len(l.Entries))
	for i, e := range l.Entries {
		var err error
		e.Pattern, err = wire.ParseNamePattern(string(e.Pattern))
		l.Entries[i].Pattern = e.Pattern
		switch c.Why = e.Comment; {
		case err != nil:
		case orders.AnyName(e.Pattern) && !l.Everything:
			err = fmt.Errorf("%q: %w", e.Pattern, ErrEverything)
		case seen[e.Pattern]:
			err = fmt.Errorf("%q is there twice", e.Pattern)
		default:
			err = errors.Join(c.Check(), judge(e.Pattern.Example()))
		}
		seen[e.Pattern] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

type allowWrite struct {
	entry *orders.Allowance
	after trust.Revision
}

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
		case a.ExpiresAt.Equal(e.ExpiresAt) && a.WithoutToken == e.WithoutToken &&
			(e.Comment == "" || e.Comment == a.Why):
			result.Unchanged++
			continue
		default:
			result.Changed = append(result.Changed, e.Pattern)
		}
		write(newest.Revision, e.Pattern, func(a *orders.Allowance) {
			a.ExpiresAt, a.Why, a.WithoutToken = e.ExpiresAt.UTC(), cmp.Or(e.Comment, a.Why), e.WithoutToken
		})
	}
	return writes, result
}
