package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/facts"
)

// ErrFact means that nodes are asked for by a fact that is not kept of them: name
// it in the configuration of the provisioners.
var ErrFact = errors.New("not kept")

// maxFacts is how many facts can be asked for at once; chosen, it bounds what a
// page costs.
const maxFacts = 16

// factEnd is between the facts of a node in their text. No fact that is kept has it.
const factEnd = "\x1f"

// Facts returns the names of the facts that nodes can be found by, in order. They
// are not to be changed.
func (x *Index) Facts() []string { return x.kept }

// packFacts returns those of the facts that are kept here as one text: nodes that
// say the same share it. Without any it is "".
func (x *Index) packFacts(facts facts.Facts) string {
	values := make([]string, len(x.kept))
	for _, f := range facts {
		if i, kept := slices.BinarySearch(x.kept, f.Name); kept && !strings.Contains(f.Value, factEnd) {
			values[i] = f.Value
		}
	}
	return strings.TrimRight(strings.Join(values, factEnd), factEnd)
}

// unpackFacts is the inverse of packFacts.
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

// parseFacts reads a filter's facts. The error names all that cannot be.
func parseFacts(texts []string) ([]facts.Filter, error) {
	var filters []facts.Filter
	var errs []error
	if n := len(texts); n > maxFacts {
		return nil, fmt.Errorf("%d facts, limit %d", n, maxFacts)
	}
	for _, text := range texts {
		f, err := facts.ParseFilter(text)
		if n := len(f.Value); err == nil && n > facts.MaxBytes {
			err = fmt.Errorf("fact %q: a value of %d bytes, of which at most %d are kept", f.Name, n, facts.MaxBytes)
		}
		filters, errs = append(filters, f), append(errs, err)
	}
	return filters, errors.Join(errs...)
}

// An askedFact is what is asked of a fact.
type askedFact struct {
	facts.Filter
	place int // of its name
}

// askedFacts returns what is asked for, or which of it is not kept.
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
		return nil, fmt.Errorf("fact %.80q: %w: of each node are kept %s; name it in fleet.facts of provisioner.yaml, and nodes are found by it once they renew or `muster node reconfigure --all` has asked them",
			strings.Join(unknown, ", "), ErrFact, cmp.Or(strings.Join(x.kept, ", "), "none"))
	}
	return asked, nil
}

// fits reports whether a node with these facts is asked for.
func (a *askedFact) fits(packed string) bool {
	for range a.place {
		_, packed, _ = strings.Cut(packed, factEnd)
	}
	value, _, _ := strings.Cut(packed, factEnd)
	if value == "" { // a pattern wants some
		return a.Value == ""
	}
	return a.Match(value)
}
