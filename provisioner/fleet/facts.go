package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/facts"
)

// ErrFact means that a filter names a fact that the index does not keep: add it to fleet.facts in provisioner.yaml.
var ErrFact = errors.New("not kept")

// maxFacts bounds the filters by fact, and so the cost of a page.
const maxFacts = 16

// factEnd separates the facts of a node. No kept fact contains it.
const factEnd = "\x1f"

// Facts returns the names of the kept facts, sorted. Do not modify them.
func (x *Index) Facts() []string { return x.kept }

// packFacts returns the kept facts as one text, which nodes with equal facts share.
func (x *Index) packFacts(facts facts.Facts) string {
	values := make([]string, len(x.kept))
	for _, f := range facts {
		if i, kept := slices.BinarySearch(x.kept, f.Name); kept && !strings.Contains(f.Value, factEnd) {
			values[i] = f.Value
		}
	}
	return strings.TrimRight(strings.Join(values, factEnd), factEnd)
}

func (x *Index) unpackFacts(packed string) (all facts.Facts) {
	if packed == "" {
		return nil
	}
	all = make(facts.Facts, 0, len(x.kept))
	for _, name := range x.kept {
		var value string
		if value, packed, _ = strings.Cut(packed, factEnd); value != "" {
			all = append(all, facts.Fact{Name: name, Value: value})
		}
	}
	return all
}

func parseFacts(texts []string) ([]facts.Filter, error) {
	var filters []facts.Filter
	var errs []error
	if n := len(texts); n > maxFacts {
		return nil, fmt.Errorf("%d facts, limit %d", n, maxFacts)
	}
	for _, text := range texts {
		f, err := facts.ParseFilter(text)
		if n := len(f.Value); err == nil && n > facts.MaxBytes {
			err = fmt.Errorf("fact %q: value of %d bytes, limit %d", f.Name, n, facts.MaxBytes)
		}
		filters, errs = append(filters, f), append(errs, err)
	}
	return filters, errors.Join(errs...)
}

type askedFact struct {
	facts.Filter
	place int // index of the name
}

func (x *Index) askedFacts(texts []string) ([]askedFact, error) {
	filters, err := parseFacts(texts)
	if err != nil {
		return nil, err
	}
	var asked []askedFact
	var unknown []string
	for _, f := range filters {
		place, ok := slices.BinarySearch(x.kept, f.Name)
		if !ok && !slices.Contains(unknown, f.Name) {
			unknown = append(unknown, f.Name)
		}
		asked = append(asked, askedFact{f, place})
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("fact %.80q: %w: the kept facts are %s; add it to fleet.facts in provisioner.yaml, "+
			"and run "+
			"`muster node reconfigure --all` to have nodes report it before their next renewal",
			strings.Join(unknown, ", "), ErrFact, cmp.Or(strings.Join(x.kept, ", "), "none"))
	}
	return asked, nil
}

func (a *askedFact) fits(packed string) bool {
	for range a.place {
		_, packed, _ = strings.Cut(packed, factEnd)
	}
	value, _, _ := strings.Cut(packed, factEnd)
	if value == "" { // no pattern matches an absent fact
		return a.Value == ""
	}
	return a.Match(value)
}
