package provisioner

import (
	"fmt"
	"maps"
	"muster/provisioner/events"
	"slices"
	"strings"
)

// The feature that says which facts a provisioner keeps of nodes: its setting
// [SettingKept] names them, in order. It is disabled where none is.
const (
	FeatureFacts = "facts"
	SettingKept  = "kept"
)

// NewFactsFeature returns the feature of a provisioner that keeps the facts of
// these names, see [Config.KeptFacts]. differ is how others do otherwise, as
// [FactsDiffer] says it, or nil: no reason to fail, since all else works.
func NewFactsFeature(names []string, differ error) Feature {
	f := NewFeature(FeatureFacts, nil)
	if len(names) == 0 {
		f.State = FeatureDisabled
	} else {
		f.Settings = map[string]string{SettingKept: strings.Join(slices.Sorted(slices.Values(names)), ", ")}
	}
	if differ != nil {
		f.Reason = events.Cut(differ.Error(), maxReasonBytes)
	}
	return f
}

// FactsDiffer returns how the facts differ that provisioners keep, nil if they do not.
// Each writes those that it names, and finds nodes by those: a list by a fact that
// another one does not keep lacks the nodes that came to that one. Who is gone does not
// count, nor who is of an earlier version and does not say what it keeps.
func FactsDiffer(all []*HeardComponent) error {
	keep := map[string][]string{} // names of provisioners by what they keep
	for _, c := range all {
		i := slices.IndexFunc(c.Features, func(f Feature) bool { return f.Name == FeatureFacts })
		if c.Gone || i < 0 {
			continue
		}
		kept := c.Features[i].Settings[SettingKept]
		keep[kept] = append(keep[kept], c.Name)
	}
	if len(keep) < 2 {
		return nil
	}
	// What all keep is left out: there are up to 16 names.
	counts := map[string]int{}
	for kept := range keep {
		for name := range strings.SplitSeq(kept, ", ") {
			counts[name]++
		}
	}
	var says []string
	for _, kept := range slices.Sorted(maps.Keys(keep)) {
		var own []string
		for name := range strings.SplitSeq(kept, ", ") {
			if name != "" && counts[name] < len(keep) {
				own = append(own, name)
			}
		}
		what := "none of these"
		if len(own) > 0 {
			what = strings.Join(own, ", ")
		}
		says = append(says, strings.Join(slices.Sorted(slices.Values(keep[kept])), ", ")+": "+what)
	}
	return fmt.Errorf("fleet.facts differs between provisioners, which should all name the same: %s", strings.Join(says, "; "))
}
