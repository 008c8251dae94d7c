package store

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestDecisionsReadFromTheLeader expects no direct reads for streams that decisions rest on.
func TestDecisionsReadFromTheLeader(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		for _, c := range streams(replicas, 0, 0) {
			if !slices.Contains(durableStreams, c.Name) || c.RePublish != nil || c.Name == streamClaims {
				continue // not for decisions, or read up to the leader's end
			}
			if c.AllowDirect != (replicas == 1) || c.Replicas != replicas {
				t.Errorf("%s of %d replicas: %d, direct reads %v", c.Name, replicas, c.Replicas, c.AllowDirect)
			}
		}
	}
}

// TestStreamsAreDocumented compares the streams with the table in docs/architecture.md.
func TestStreamsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, made []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(MUSTER_\\w+)`").FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, row[1])
	}
	for _, c := range streams(1, 0, 0) {
		made = append(made, c.Name)
	}
	slices.Sort(documented)
	slices.Sort(made)
	if !slices.Equal(documented, made) {
		t.Errorf("docs/architecture.md has %v, the store %v", documented, made)
	}
}
